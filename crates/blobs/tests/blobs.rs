//! Storing and reading blobs: what clients of a store rely on.

mod common;

use blobs::{Digest, DigestFunction, Error, MAX_BATCH_BYTES, Tenant};
use bytes::Bytes;
use common::*;

const CHUNK: usize = 256 << 10;

#[test]
fn a_blob_of_any_size_reads_back() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for function in DigestFunction::ALL {
        for bytes in [1, 999, 1000, 1001, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7] {
            let content = content(bytes as u64, bytes);
            let digest = put_as(&store, &tenant(), function, &content).unwrap();
            assert_eq!(get(&store, &digest).unwrap(), content);
            assert_eq!(stream(&store, &digest, 0, None).unwrap(), content);
        }
    }
    assert_eq!(store.usage().blobs, 16);
}

/// R10, I6.
#[test]
fn the_empty_blob_is_always_present_and_never_stored() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let before = store.usage();
    for function in DigestFunction::ALL {
        let empty = Digest::of(function, b"");
        assert_eq!(store.find_missing(&tenant(), &[empty]), []);
        assert_eq!(store.find(&tenant(), function, &empty.hash), Some(empty));
        assert_eq!(get(&store, &empty).unwrap(), Bytes::new());
        assert_eq!(stream(&store, &empty, 0, Some(5)).unwrap(), []);
        assert_eq!(store.put_many(&tenant(), &[(empty, Bytes::new())]).len(), 1);
        assert!(store.write_status(&tenant(), "any", &empty).complete);
    }
    assert_eq!(store.usage(), before);
}

/// I5, R6, R15: one lie does not harm its neighbours.
#[test]
fn a_digest_that_lies_is_refused_and_its_neighbours_are_stored() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for bytes in [500, 5000] {
        let (one, two) = (content(1, bytes), content(2, bytes));
        let wrong_size = Digest { size: bytes as u64 + 1, ..sha256(&one) };
        let batch = [(wrong_size, one.clone()), (sha256(&one), two.clone()), (sha256(&two), two.clone())];
        let answers = store.put_many(&tenant(), &batch);
        assert!(matches!(answers[0], Err(Error::Mismatch { .. })));
        assert!(matches!(answers[1], Err(Error::Mismatch { .. })));
        assert!(answers[2].is_ok());
        assert!(is_missing(&store, &sha256(&one)));
        assert!(is_missing(&store, &wrong_size));
        assert_eq!(get(&store, &sha256(&two)).unwrap(), two);
        // A right hash with a wrong size names nothing, even when the blob is here.
        assert!(is_missing(&store, &Digest { size: 1, ..sha256(&two) }));
    }
    assert_eq!(files(&root.path().join("temp")), [""; 0]);
}

/// R14.
#[test]
fn missing_blobs_are_named_once_in_order() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let here = put(&store, &content(1, 10)).unwrap();
    let (two, three) = (sha256(b"two"), sha256(b"three"));
    assert_eq!(store.find_missing(&tenant(), &[three, here, two, three, two, here]), [three, two]);
    assert!(!store.find_missing(&tenant(), &[here, two]).is_empty());
    assert!(store.find_missing(&tenant(), &[here, here]).is_empty());
}

/// R20, I16.
#[test]
fn reads_start_and_stop_where_they_are_told() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for bytes in [900, 2 * CHUNK + 100] {
        let content = content(bytes as u64, bytes);
        let digest = put(&store, &content).unwrap();
        let middle = bytes as u64 / 2;
        for offset in [0, 1, middle, bytes as u64 - 1, bytes as u64] {
            for limit in [None, Some(0), Some(1), Some(middle), Some(u64::MAX)] {
                let end = limit.map_or(bytes as u64, |limit| offset.saturating_add(limit).min(bytes as u64));
                let expected = &content[offset as usize..end as usize];
                assert!(stream(&store, &digest, offset, limit).unwrap() == expected, "{offset} {limit:?}");
            }
        }
        let beyond = stream(&store, &digest, bytes as u64 + 1, None);
        assert!(matches!(beyond, Err(Error::OutOfRange { .. })));
    }
}

#[test]
fn tenants_neither_see_nor_share_blobs() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let (one, other) = (Tenant::new("one").unwrap(), Tenant::new("other").unwrap());
    for bytes in [100, 10_000] {
        let content = content(bytes as u64, bytes);
        let digest = put_as(&store, &one, DigestFunction::Sha256, &content).unwrap();
        assert_eq!(store.find_missing(&other, &[digest]), [digest]);
        assert_eq!(store.find(&other, digest.function, &digest.hash), None);
        assert!(matches!(store.get_many(&other, &[digest])[0], Err(Error::NotFound(_))));
        assert!(!store.write_status(&other, "x", &digest).complete);
        let before = store.usage().blobs;
        put_as(&store, &other, DigestFunction::Sha256, &content).unwrap();
        assert_eq!(store.usage().blobs, before + 1);
        assert_eq!(store.get_many(&other, &[digest])[0].as_ref().unwrap(), &content);
    }
}

#[test]
fn a_blob_is_found_by_its_hash_alone() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let digest = put(&store, &content(1, 77)).unwrap();
    assert_eq!(store.find(&tenant(), digest.function, &digest.hash), Some(digest));
    assert_eq!(store.find(&tenant(), DigestFunction::Blake3, &digest.hash), None);
}

/// I14.
#[test]
fn a_batch_beyond_its_bound_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let half = MAX_BATCH_BYTES as usize / 2 + 1;
    let (one, two) = (content(1, half), content(2, half));
    let batch = [(sha256(&one), one.clone()), (sha256(&two), two.clone())];
    assert!(
        store.put_many(&tenant(), &batch).iter().all(|answer| matches!(answer, Err(Error::TooLarge { .. })))
    );
    put(&store, &one).unwrap();
    put(&store, &two).unwrap();
    let answers = store.get_many(&tenant(), &[sha256(&one), sha256(&two), sha256(b"")]);
    assert_eq!(answers[0].as_ref().unwrap(), &one);
    assert!(matches!(answers[1], Err(Error::TooLarge { .. })));
    assert!(answers[2].is_ok());
}

#[test]
fn a_blob_twice_in_a_batch_is_stored_once() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let content = content(1, 100);
    let batch = [(sha256(&content), content.clone()), (sha256(&content), content.clone())];
    assert!(store.put_many(&tenant(), &batch).iter().all(Result::is_ok));
    let bytes = store.usage().pack_bytes;
    assert!(store.put_many(&tenant(), &batch).iter().all(Result::is_ok));
    assert_eq!(store.usage().pack_bytes, bytes);
}

#[test]
fn the_file_of_a_large_blob_cannot_be_written_to() {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    put(&store, &content(1, 5000)).unwrap();
    let mut modes = Vec::new();
    let mut directories = vec![root.path().to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in directory.read_dir().unwrap().map(Result::unwrap) {
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                directories.push(entry.path());
            } else if metadata.len() == 5000 {
                modes.push(metadata.permissions().mode() & 0o777);
            }
        }
    }
    assert_eq!(modes, [0o444]);
}

#[test]
fn a_blob_too_large_for_the_store_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let options = blobs::Options { max_blob_bytes: 5000, ..options() };
    let store = blobs::Store::open(root.path(), options).unwrap();
    assert!(matches!(put(&store, &content(1, 5001)), Err(Error::TooLarge { limit: 5000, .. })));
    put(&store, &content(1, 5000)).unwrap();
    let anything = blobs::UploadRequest::new(blobs::Expect::Anything(DigestFunction::Sha256));
    assert!(matches!(upload(&store, &anything, &content(2, 5001)), Err(Error::TooLarge { .. })));
}
