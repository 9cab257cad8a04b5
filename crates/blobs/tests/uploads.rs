//! Uploads that stop, resume, race, lie and vanish.

mod common;

use std::{
    sync::Barrier,
    time::{Duration, Instant},
};

use blobs::{Digest, DigestFunction, Error, Expect, Options, Progress, Store, UploadRequest, WriteStatus};
use common::*;

fn temp_files(root: &std::path::Path) -> usize {
    files(&root.join("temp")).len()
}

/// R24, N16.
#[test]
fn an_upload_is_resumed_by_name_where_it_stopped() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let content = content(1, 10_000);
    let digest = sha256(&content);
    let mut first = store.write(&tenant(), &UploadRequest::named(digest, "u", 0)).unwrap().unwrap();
    assert_eq!(first.write(0, &content[..4000]).unwrap(), Progress::More);
    drop(first);
    let status = WriteStatus { committed: 4000, complete: false };
    assert_eq!(store.write_status(&tenant(), "u", &digest), status);
    for offset in [1, 3999, 4001] {
        let wrong = store.write(&tenant(), &UploadRequest::named(digest, "u", offset));
        assert!(matches!(wrong, Err(Error::WrongOffset { committed: 4000, .. })), "{offset}");
    }
    let mut second = store.write(&tenant(), &UploadRequest::named(digest, "u", 4000)).unwrap().unwrap();
    assert!(matches!(second.write(0, b"x"), Err(Error::WrongOffset { committed: 4000, offset: 0 })));
    second.write(4000, &content[4000..]).unwrap();
    assert!(is_missing(&store, &digest), "nothing is visible before it is whole");
    assert_eq!(second.finish().unwrap(), digest);
    assert_eq!(
        store.write_status(&tenant(), "u", &digest),
        WriteStatus { committed: 10_000, complete: true }
    );
    assert_eq!(get(&store, &digest).unwrap(), content);
    assert_eq!((store.open_uploads(), temp_files(root.path()), store.usage().upload_bytes), (0, 0, 0));
}

#[test]
fn a_name_that_nobody_knows_starts_at_zero() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let digest = sha256(b"content");
    assert_eq!(store.write_status(&tenant(), "u", &digest), WriteStatus { committed: 0, complete: false });
    let resumed = store.write(&tenant(), &UploadRequest::named(digest, "u", 3));
    assert!(matches!(resumed, Err(Error::WrongOffset { committed: 0, offset: 3 })));
}

/// What is in memory goes with its writer, so nobody is told to go on behind it (R24).
#[test]
fn only_what_stays_is_said_to_be_committed() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let content = content(1, 10_000);
    let digest = sha256(&content);
    let begin = || store.write(&tenant(), &UploadRequest::named(digest, "u", 0)).unwrap().unwrap();
    let told = || store.write_status(&tenant(), "u", &digest).committed;
    let mut upload = begin();
    upload.write(0, &content[..900]).unwrap();
    assert_eq!((upload.committed(), told()), (900, 0));
    assert!(matches!(
        store.write(&tenant(), &UploadRequest::named(digest, "u", 899)),
        Err(Error::WrongOffset { committed: 0, offset: 899 })
    ));
    assert_eq!((upload.leave(), told()), (0, 0));
    let mut upload = begin();
    upload.write(0, &content[..900]).unwrap();
    upload.write(900, &content[900..2000]).unwrap();
    assert_eq!(told(), 2000);
    assert_eq!((upload.leave(), told()), (2000, 2000));
    let mut unnamed = store.write(&tenant(), &UploadRequest::new(Expect::Digest(digest))).unwrap().unwrap();
    unnamed.write(0, &content[..2000]).unwrap();
    assert_eq!(unnamed.leave(), 0);
}

#[test]
fn a_writer_that_starts_anew_gets_a_clean_upload() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let content = content(1, 10_000);
    let request = UploadRequest::named(sha256(&content), "u", 0);
    let mut first = store.write(&tenant(), &request).unwrap().unwrap();
    first.write(0, &[7; 5000]).unwrap();
    drop(first);
    assert_eq!(upload(&store, &request, &content).unwrap(), sha256(&content));
    assert_eq!((store.open_uploads(), temp_files(root.path())), (0, 0));
}

/// A8: the same name, used by two at once.
#[test]
fn a_second_writer_of_a_name_does_not_disturb_the_first() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let content = content(1, 10_000);
    let request = UploadRequest::named(sha256(&content), "u", 0);
    let mut first = store.write(&tenant(), &request).unwrap().unwrap();
    first.write(0, &content[..4000]).unwrap();
    let mut second = store.write(&tenant(), &request).unwrap().unwrap();
    second.write(0, &[0; 6000]).unwrap();
    first.write(4000, &content[4000..]).unwrap();
    drop(second);
    assert_eq!(first.finish().unwrap(), sha256(&content));
    assert_eq!(store.open_uploads(), 0);
}

/// A8: one name with two digests is two uploads.
#[test]
fn one_name_with_two_digests_is_two_uploads() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let contents = [content(1, 10_000), content(2, 10_000)];
    let begin = |content: &bytes::Bytes| {
        store.write(&tenant(), &UploadRequest::named(sha256(content), "u", 0)).unwrap().unwrap()
    };
    let mut uploads = [begin(&contents[0]), begin(&contents[1])];
    for (upload, content) in uploads.iter_mut().zip(&contents) {
        upload.write(0, content).unwrap();
    }
    for (upload, content) in uploads.into_iter().zip(&contents) {
        assert_eq!(upload.finish().unwrap(), sha256(content));
    }
}

#[test]
fn a_writer_that_comes_back_takes_over_from_a_dead_connection() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let content = content(1, 10_000);
    let digest = sha256(&content);
    let mut stale = store.write(&tenant(), &UploadRequest::named(digest, "u", 0)).unwrap().unwrap();
    stale.write(0, &content[..4000]).unwrap();
    let mut fresh = store.write(&tenant(), &UploadRequest::named(digest, "u", 4000)).unwrap().unwrap();
    assert!(matches!(stale.write(4000, &[0; 10]), Err(Error::TakenOver)));
    assert!(matches!(stale.finish(), Err(Error::TakenOver)));
    fresh.write(4000, &content[4000..]).unwrap();
    assert_eq!(fresh.finish().unwrap(), digest);
}

/// R25: whoever is second is told yes as well.
#[test]
fn two_uploads_of_one_blob_both_succeed() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for bytes in [800, 10_000] {
        let content = content(bytes as u64, bytes);
        let request = UploadRequest::new(Expect::Digest(sha256(&content)));
        let mut one = store.write(&tenant(), &request).unwrap().unwrap();
        let mut two = store.write(&tenant(), &request).unwrap().unwrap();
        one.write(0, &content).unwrap();
        two.write(0, &content[..100]).unwrap();
        assert_eq!(one.finish().unwrap(), sha256(&content));
        // R22: it became present under way.
        assert_eq!(two.write(100, &content[100..]).unwrap(), Progress::Present);
        assert_eq!(two.finish().unwrap(), sha256(&content));
        assert!(store.write(&tenant(), &request).unwrap().is_none());
        assert_eq!(get(&store, &sha256(&content)).unwrap(), content);
    }
    assert_eq!((store.usage().blobs, store.open_uploads(), temp_files(root.path())), (2, 0, 0));
}

/// R25, in any mix and at the same moment.
#[test]
fn racing_uploads_and_batches_of_the_same_blobs_all_succeed() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let contents: Vec<_> = (0..40).map(|n| content(n, if n % 2 == 0 { 700 } else { 7000 })).collect();
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (store, contents, barrier) = (&store, &contents, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for content in contents {
                    let request = UploadRequest::new(Expect::Digest(sha256(content)));
                    if worker % 2 == 0 {
                        put(store, content).unwrap();
                    } else if let Some(mut upload) = store.write(&tenant(), &request).unwrap() {
                        upload.write(0, content).unwrap();
                        upload.finish().unwrap();
                    }
                    assert_eq!(&get(store, &sha256(content)).unwrap(), content);
                }
            });
        }
    });
    assert_eq!((store.usage().blobs, store.open_uploads(), temp_files(root.path())), (40, 0, 0));
    let bytes: u64 =
        contents.iter().map(|content| content.len() as u64).filter(|bytes| *bytes > SMALL_BYTES).sum();
    assert_eq!(store.usage().file_bytes, bytes);
}

/// R21, I5.
#[test]
fn content_that_is_not_what_was_announced_is_refused_and_gone() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for bytes in [900, 9000] {
        let (right, wrong) = (content(1, bytes), content(2, bytes));
        let request = UploadRequest::named(sha256(&right), "u", 0);
        assert!(matches!(upload(&store, &request, &wrong), Err(Error::Mismatch { .. })));
        assert!(matches!(upload(&store, &request, &right[1..]), Err(Error::Mismatch { .. })));
        let longer = [&right[..], b"x"].concat();
        assert!(matches!(upload(&store, &request, &longer), Err(Error::TooLong { .. })));
        assert!(is_missing(&store, &sha256(&right)));
        upload(&store, &request, &right).unwrap();
    }
    assert_eq!((store.open_uploads(), temp_files(root.path()), store.usage().upload_bytes), (0, 0, 0));
}

#[test]
fn content_of_unknown_size_or_name_gets_the_name_it_deserves() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for bytes in [0, 10, 10_000] {
        let content = content(bytes as u64, bytes);
        let anything = UploadRequest::new(Expect::Anything(DigestFunction::Blake3));
        let digest = upload(&store, &anything, &content).unwrap();
        assert_eq!(digest, Digest::of(DigestFunction::Blake3, &content));
        assert_eq!(get(&store, &digest).unwrap(), content);
    }
    let content = content(3, 5000);
    let hash = UploadRequest::new(Expect::Hash(DigestFunction::Sha256, sha256(&content).hash));
    assert!(matches!(upload(&store, &hash, b"something else"), Err(Error::Mismatch { .. })));
    assert_eq!(upload(&store, &hash, &content).unwrap(), sha256(&content));
    assert!(store.write(&tenant(), &hash).unwrap().is_none());
}

/// A7.
#[test]
fn an_upload_that_nobody_comes_back_to_is_gone_after_its_time() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let digest = sha256(&content(1, 10_000));
    let mut upload = store.write(&tenant(), &UploadRequest::named(digest, "u", 0)).unwrap().unwrap();
    upload.write(0, &[0; 5000]).unwrap();
    let later = Instant::now() + Options::default().upload_idle + Duration::from_secs(1);
    store.maintain(later);
    assert_eq!(store.open_uploads(), 1, "its writer is still there");
    drop(upload);
    store.maintain(Instant::now());
    assert_eq!((store.open_uploads(), temp_files(root.path())), (1, 1));
    assert!(store.usage().upload_bytes >= 5000, "it counts against the cap");
    store.maintain(later + Duration::from_secs(60));
    assert_eq!((store.open_uploads(), temp_files(root.path()), store.usage().upload_bytes), (0, 0, 0));
    assert_eq!(store.write_status(&tenant(), "u", &digest), WriteStatus { committed: 0, complete: false });
}

/// A7.
#[test]
fn open_uploads_are_bounded_and_abandoned_ones_make_room() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path(), Options { max_uploads_per_tenant: 3, ..options() }).unwrap();
    let begin = |name: &str| store.write(&tenant(), &UploadRequest::named(sha256(&[1; 9000]), name, 0));
    let mut open: Vec<_> = ["a", "b", "c"].iter().map(|name| begin(name).unwrap().unwrap()).collect();
    assert!(matches!(begin("d"), Err(Error::TooManyUploads { limit: 3 })));
    let other = blobs::Tenant::new("other").unwrap();
    assert!(store.write(&other, &UploadRequest::named(sha256(&[1; 9000]), "a", 0)).is_ok());
    open[1].write(0, &[1; 5000]).unwrap();
    drop(open.remove(1));
    assert_eq!(store.write_status(&tenant(), "b", &sha256(&[1; 9000])).committed, 5000);
    open.push(begin("d").unwrap().unwrap());
    assert_eq!(store.write_status(&tenant(), "b", &sha256(&[1; 9000])).committed, 0);
    assert_eq!(temp_files(root.path()), 0);
}

#[test]
fn a_small_upload_that_breaks_off_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let mut upload =
        store.write(&tenant(), &UploadRequest::named(sha256(&[1; 900]), "u", 0)).unwrap().unwrap();
    upload.write(0, &[1; 100]).unwrap();
    drop(upload);
    assert_eq!((store.open_uploads(), temp_files(root.path())), (0, 0));
}

#[test]
fn a_name_beyond_its_bound_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let request = UploadRequest::named(sha256(b"x"), &"n".repeat(1025), 0);
    assert!(matches!(store.write(&tenant(), &request), Err(Error::TooLarge { .. })));
}
