//! A disk that is really full (D6). Mounts a small file system, which takes root.

mod common;
#[path = "common/small_disk.rs"]
mod small_disk;

use std::fs;

use blobs::{Error, Options, Store, UploadRequest};
use common::*;
use small_disk::SmallDisk;

#[test]
fn a_full_disk_is_an_error_and_nothing_else_is_lost() {
    let disk = SmallDisk::mount(4 << 20);
    let root = disk.path().join("store");
    let options = Options { pack_bytes: 1 << 20, ..options() };
    let store = Store::open(&root, options.clone()).unwrap();
    let mut stored = Vec::new();
    let mut refused = 0;
    for n in 0..600 {
        let content = content(n, if n % 3 == 0 { 30_000 } else { 900 });
        match put(&store, &content) {
            Ok(digest) => stored.push((digest, content)),
            Err(Error::DiskFull) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 100 && stored.len() > 100, "{refused} {}", stored.len());
    let full = upload(&store, &UploadRequest::named(sha256(&[1; 900_000]), "u", 0), &[1; 900_000]);
    assert!(matches!(full, Err(Error::DiskFull)));
    store.maintain(std::time::Instant::now() + options.upload_idle * 2);
    assert_eq!(files(&root.join("temp")), [""; 0]);
    assert_eq!(store.usage().upload_bytes, 0);
    for (digest, content) in &stored {
        assert_eq!(&get(&store, digest).unwrap(), content);
    }
    drop(store);
    let store = Store::open(&root, options).unwrap();
    for (digest, content) in &stored {
        assert_eq!(&get(&store, digest).unwrap(), content);
    }
    // With room again, everything goes on.
    let digest = stored.iter().map(|(digest, _)| digest).find(|digest| digest.size > SMALL_BYTES).unwrap();
    fs::remove_file(only_file(&root, &digest.hash.to_string())).unwrap();
    assert!(matches!(get(&store, digest), Err(Error::NotFound(_))));
    put(&store, &content(9999, 800)).unwrap();
}

/// The ledger may live on the same disk, and must not suffer.
#[test]
fn room_is_left_for_others_by_evicting() {
    let disk = SmallDisk::mount(200 << 20);
    let options = Options { keep_free_bytes: 100 << 20, ..options() };
    let store = Store::open(disk.path().join("store"), options).unwrap();
    for n in 0..80 {
        put(&store, &content(n, 3 << 20)).unwrap();
    }
    let usage = store.usage();
    // The free space is looked at after every so many bytes.
    assert!(usage.file_bytes <= (100 << 20) + (64 << 20) + (3 << 20), "{usage:?}");
    assert!(store.contains_all(&tenant(), &[sha256(&content(79, 3 << 20))]));
    assert!(is_missing(&store, &sha256(&content(0, 3 << 20))));
}
