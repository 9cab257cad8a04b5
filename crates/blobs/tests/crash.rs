//! Killed processes, lost power and bad disks: whatever can be read is right, and what is gone is missing.

mod common;

use std::{fs, path::Path};

use blobs::{ActionKey, Digest, Error, Origin, Serve, Store, UploadRequest};
use bytes::Bytes;
use common::*;

const LARGE_BYTES: usize = 600_000;

fn key() -> ActionKey {
    ActionKey { instance: "main".into(), action: sha256(b"action") }
}

/// Never wrong bytes: what is said to be there reads back, at most with one "damaged" that is gone afterwards.
fn check(store: &Store, digest: &Digest, content: &Bytes) -> bool {
    let is_missing = store.find_missing(&tenant(), &[*digest]) == [*digest];
    match get(store, digest) {
        Ok(found) => assert!(found == *content && !is_missing),
        Err(Error::NotFound(_)) => return false,
        Err(Error::Damaged(_)) => {
            assert!(common::is_missing(store, digest), "after the first reader it is missing (D27)");
            return false;
        }
        Err(error) => panic!("{error}"),
    }
    true
}

#[test]
fn everything_is_there_again_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let mut all: Vec<Bytes> = Vec::new();
    for round in 0..4u64 {
        let store = open(root.path());
        for n in 0..60 {
            let content =
                content(round * 100 + n, if n % 20 == 0 { LARGE_BYTES } else { 10 + n as usize * 15 });
            put(&store, &content).unwrap();
            all.push(content);
        }
        let usage = store.usage();
        for content in &all {
            assert_eq!(&get(&store, &sha256(content)).unwrap(), content);
        }
        // Closed, checkpointed under way, or just gone: it makes no difference.
        match round {
            0 => store.clone().close().unwrap(),
            1 => store.checkpoint().unwrap(),
            _ => {}
        }
        drop(store);
        assert_eq!(open(root.path()).usage(), usage);
    }
}

/// R25, D28: the directory as a kill at any moment between two steps leaves it.
#[test]
fn a_kill_at_any_step_loses_nothing_that_was_acknowledged() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let large = content(1, LARGE_BYTES);
    let small = content(2, 700);
    let mut expected: Vec<&Bytes> = Vec::new();
    let see = |expected: &[&Bytes], result: Option<&[u8]>| {
        let copied = tempfile::tempdir().unwrap();
        copy(root.path(), copied.path());
        let store = open(copied.path());
        for content in [&large, &small] {
            assert_eq!(check(&store, &sha256(content), content), expected.contains(&content));
        }
        let found = store.get_result(&tenant(), &key(), Serve::Any).unwrap();
        assert_eq!(found.as_ref().map(|result| &result.bytes[..]), result);
        assert_eq!(files(&copied.path().join("temp")), [""; 0]);
        put(&store, &content(99, 100)).unwrap();
    };
    see(&expected, None);
    let mut upload = store.write(&tenant(), &UploadRequest::named(sha256(&large), "u", 0)).unwrap().unwrap();
    upload.write(0, &large[..300_000]).unwrap();
    see(&expected, None);
    upload.write(300_000, &large[300_000..]).unwrap();
    see(&expected, None);
    upload.finish().unwrap();
    expected.push(&large);
    see(&expected, None);
    put(&store, &small).unwrap();
    expected.push(&small);
    see(&expected, None);
    store.put_result(&tenant(), &key(), Origin::Committed, b"one").unwrap();
    see(&expected, Some(b"one"));
    store.checkpoint().unwrap();
    see(&expected, Some(b"one"));
    store.put_result(&tenant(), &key(), Origin::Committed, b"two").unwrap();
    see(&expected, Some(b"two"));
    store.remove_result(&tenant(), &key()).unwrap();
    see(&expected, None);
}

/// A kill between the file's rename and its record, and the other way round.
#[test]
fn a_file_without_a_record_is_removed_and_a_record_without_a_file_is_missing() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let digest = put(&store, &content(1, LARGE_BYTES)).unwrap();
    let path = only_file(root.path(), &digest.hash.to_string());
    drop(store);
    let hash = sha256(b"orphan").hash.to_string();
    let tenant_directory = path.parent().unwrap().parent().unwrap();
    let orphan = tenant_directory.join(&hash[..2]).join(format!("sha256-{hash}"));
    fs::create_dir_all(orphan.parent().unwrap()).unwrap();
    fs::write(&orphan, b"orphan").unwrap();
    let store = open(root.path());
    assert!(!orphan.exists());
    assert!(is_missing(&store, &sha256(b"orphan")));
    assert!(!is_missing(&store, &digest));
    drop(store);
    fs::remove_file(&path).unwrap();
    let store = open(root.path());
    assert!(is_missing(&store, &digest));
    assert_eq!(store.usage().file_bytes, 0);
    put(&store, &content(1, LARGE_BYTES)).unwrap();
    assert!(!is_missing(&store, &digest));
}

/// A pack with a few blobs, killed before any checkpoint; the records' ends.
fn unlisted_pack(root: &Path) -> (Vec<Bytes>, Vec<u64>) {
    let store = open(root);
    let contents: Vec<Bytes> = (0..5).map(|n| content(n, 40 + 10 * n as usize)).collect();
    let mut ends = Vec::new();
    for content in &contents {
        put(&store, content).unwrap();
        ends.push(store.usage().pack_bytes);
    }
    (contents, ends)
}

/// D7: a torn tail, at every byte.
#[test]
fn a_pack_cut_anywhere_keeps_the_records_before_the_cut() {
    let root = tempfile::tempdir().unwrap();
    let (contents, ends) = unlisted_pack(root.path());
    let whole = fs::read(only_file(root.path(), ".pack")).unwrap();
    for cut in 0..whole.len() {
        let copied = tempfile::tempdir().unwrap();
        copy(root.path(), copied.path());
        fs::write(only_file(copied.path(), ".pack"), &whole[..cut]).unwrap();
        let store = open(copied.path());
        for (content, end) in contents.iter().zip(&ends) {
            assert_eq!(check(&store, &sha256(content), content), *end <= cut as u64, "{cut}");
        }
        // What follows is found again, behind the cut.
        put(&store, &content(50, 60)).unwrap();
        drop(store);
        assert!(!is_missing(&open(copied.path()), &sha256(&content(50, 60))));
    }
}

/// D8: pages that never reached the disk.
#[test]
fn zeroed_pages_are_no_blobs() {
    let root = tempfile::tempdir().unwrap();
    let (contents, ends) = unlisted_pack(root.path());
    let path = only_file(root.path(), ".pack");
    let mut bytes = fs::read(&path).unwrap();
    bytes[ends[1] as usize..ends[2] as usize].fill(0);
    bytes.extend_from_slice(&[0; 4096]);
    fs::write(&path, bytes).unwrap();
    let store = open(root.path());
    let found: Vec<bool> = contents.iter().map(|content| check(&store, &sha256(content), content)).collect();
    assert_eq!(found, [true, true, false, false, false]);
}

/// D9, D10, D27: one bit anywhere in a pack, listed or not.
#[test]
fn a_flipped_bit_in_a_pack_never_gives_wrong_bytes() {
    for listed in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let (contents, _) = unlisted_pack(root.path());
        if listed {
            open(root.path()).close().unwrap();
        }
        let whole = fs::read(only_file(root.path(), ".pack")).unwrap();
        for at in (0..whole.len()).step_by(7) {
            let copied = tempfile::tempdir().unwrap();
            copy(root.path(), copied.path());
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(only_file(copied.path(), ".pack"), bytes).unwrap();
            let store = open(copied.path());
            let there = contents.iter().filter(|content| check(&store, &sha256(content), content)).count();
            // A listed record is found although its neighbour is damaged.
            assert!(!listed || there >= 4 || at < 64, "{at}: {there}");
            // A blob that was found damaged stays away, and can be stored again.
            drop(store);
            let store = open(copied.path());
            for content in &contents {
                put(&store, content).unwrap();
                assert!(check(&store, &sha256(content), content));
            }
        }
    }
}

#[test]
fn a_blob_found_damaged_stays_missing_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let (contents, ends) = unlisted_pack(root.path());
    open(root.path()).close().unwrap();
    let path = only_file(root.path(), ".pack");
    let mut bytes = fs::read(&path).unwrap();
    bytes[ends[2] as usize - 1] ^= 1;
    fs::write(&path, bytes).unwrap();
    let store = open(root.path());
    let digest = sha256(&contents[2]);
    assert_eq!(store.find_missing(&tenant(), &[digest]), [], "nobody has looked yet");
    assert!(matches!(get(&store, &digest), Err(Error::Damaged(_))));
    drop(store);
    assert!(is_missing(&open(root.path()), &digest));
}

/// A list that is damaged, cut or gone costs time, not blobs.
#[test]
fn a_damaged_list_is_made_up_for_by_reading_the_pack() {
    let root = tempfile::tempdir().unwrap();
    let (contents, _) = unlisted_pack(root.path());
    open(root.path()).close().unwrap();
    let list = fs::read(only_file(root.path(), ".list")).unwrap();
    for at in (0..list.len()).step_by(17) {
        for damage in 0..3 {
            let copied = tempfile::tempdir().unwrap();
            copy(root.path(), copied.path());
            let path = only_file(copied.path(), ".list");
            match damage {
                0 => fs::write(&path, &list[..at]).unwrap(),
                1 => fs::remove_file(&path).unwrap(),
                _ => {
                    let mut bytes = list.clone();
                    bytes[at] ^= 4;
                    fs::write(&path, bytes).unwrap();
                }
            }
            let store = open(copied.path());
            assert!(contents.iter().all(|content| check(&store, &sha256(content), content)));
            store.close().unwrap();
            let store = open(copied.path());
            assert!(contents.iter().all(|content| check(&store, &sha256(content), content)));
        }
    }
}

/// D27.
#[test]
fn a_damaged_file_is_found_before_its_bytes_leave() {
    for at in [0, 300_000, LARGE_BYTES - 1] {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path());
        let content = content(1, LARGE_BYTES);
        let digest = put(&store, &content).unwrap();
        let path = only_file(root.path(), &digest.hash.to_string());
        let mut bytes = content.to_vec();
        bytes[at] ^= 1;
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        let mut reader = store.read(&tenant(), &digest, 0, None).unwrap();
        let mut read = Vec::new();
        let error = loop {
            match reader.next_piece() {
                Ok(Some(piece)) => read.extend_from_slice(&piece),
                Ok(None) => panic!("the damage was not seen"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Damaged(_)));
        assert!(read == content[..read.len()], "what left was right");
        assert!(is_missing(&store, &digest));
        assert!(!path.exists());
        put(&store, &content).unwrap();
        assert!(check(&store, &digest, &content));
    }
}

/// After a power loss a renamed file may be empty, short or full of zeros.
#[test]
fn files_since_the_last_checkpoint_are_checked_at_start() {
    let content = content(1, LARGE_BYTES);
    let digest = sha256(&content);
    for (bytes, is_whole) in [
        (Vec::new(), false),
        (content[..LARGE_BYTES - 1].to_vec(), false),
        ([&content[..], b"x"].concat(), false),
        (vec![0; LARGE_BYTES], false),
        (content.to_vec(), true),
    ] {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path());
        put(&store, &content).unwrap();
        drop(store);
        let path = only_file(root.path(), &digest.hash.to_string());
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        let store = open(root.path());
        assert_eq!(store.find_missing(&tenant(), &[digest]).is_empty(), is_whole);
        assert_eq!(path.exists(), is_whole);
        put(&store, &content).unwrap();
        assert!(check(&store, &digest, &content));
    }
}

#[test]
fn leftovers_of_uploads_are_removed_at_start() {
    let root = tempfile::tempdir().unwrap();
    drop(open(root.path()));
    fs::write(root.path().join("temp").join("0000000000000000"), b"half a blob").unwrap();
    let store = open(root.path());
    assert_eq!(files(&root.path().join("temp")), [""; 0]);
    upload(&store, &UploadRequest::named(sha256(&[1; 5000]), "u", 0), &[1; 5000]).unwrap();
}

/// A pack of another store, or garbage of its name, is not ours to read.
#[test]
fn a_pack_that_is_not_ours_is_not_read() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (contents, _) = unlisted_pack(root.path());
    unlisted_pack(other.path());
    fs::copy(only_file(other.path(), ".pack"), root.path().join("packs/00000000.pack")).unwrap();
    fs::write(root.path().join("packs/00000009.pack"), b"garbage").unwrap();
    let store = open(root.path());
    assert_eq!(store.usage().blobs, contents.len());
    assert!(contents.iter().all(|content| check(&store, &sha256(content), content)));
}
