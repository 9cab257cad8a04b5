//! A disk that is really full (D6). Mounts a small file system, which takes root.

mod common;
#[path = "common/small_disk.rs"]
mod small_disk;

use std::{
    fs::{self, File},
    io::Write,
    time::{Duration, Instant},
};

use blobs::{
    ActionKey, Digest, DigestFunction, Error, Expect, OpenError, Options, Origin, Result, Serve, Store,
    UploadRequest,
};
use bytes::Bytes;
use common::*;
use small_disk::SmallDisk;

const LARGE_BYTES: usize = 100_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// A store that leaves a mebibyte of its small disk to others.
fn store_on(disk: &SmallDisk) -> Store {
    let options = Options { keep_free_bytes: 1 << 20, ..options() };
    Store::open(disk.path().join("store"), options).unwrap()
}

/// Opens a store again that was dropped. A process that another test is about to start may hold its lock for a moment.
fn reopen(root: &std::path::Path, options: &Options) -> Store {
    let begun = Instant::now();
    loop {
        match Store::open(root, options.clone()) {
            Err(OpenError::InUse(_)) if begun.elapsed() < PATIENCE => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

fn put_range(store: &Store, seeds: std::ops::Range<u64>, bytes: usize) -> Vec<Digest> {
    seeds.map(|seed| put(store, &content(seed, bytes)).unwrap()).collect()
}

fn result_key(action: &str) -> ActionKey {
    ActionKey { instance: "main".into(), action: sha256(action.as_bytes()) }
}

/// Somebody else takes what is left of the disk, and the store's newest pack takes what is left of its page.
fn fill(disk: &SmallDisk, store: &Store) {
    let mut file = File::create(disk.path().join("others")).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    for n in 0.. {
        match put(store, &Bytes::from(format!("{n}"))) {
            Ok(_) => {}
            Err(Error::DiskFull) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Uploads that come to nothing, until one finds room: enough of them to have the free space looked at twice,
/// at a mebibyte of the cap each, even if no write fails.
fn upload_until_there_is_room(store: &Store) -> Result<()> {
    let request = UploadRequest::new(Expect::Anything(DigestFunction::Sha256));
    let mut last = Ok(());
    for _ in 0..130 {
        let mut upload = store.write(&tenant(), &request)?.unwrap();
        last = upload.write(0, &[7; SMALL_BYTES as usize + 1]).map(|_| ());
        if last.is_ok() {
            break;
        }
    }
    last
}

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
    store.maintain(Instant::now() + options.upload_idle * 2);
    assert_eq!(files(&root.join("temp")), [""; 0]);
    assert_eq!(store.usage().upload_bytes, 0);
    for (digest, content) in &stored {
        assert_eq!(&get(&store, digest).unwrap(), content);
    }
    drop(store);
    let store = reopen(&root, &options);
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
    assert!(store.find_missing(&tenant(), &[sha256(&content(79, 3 << 20))]).is_empty());
    assert!(is_missing(&store, &sha256(&content(0, 3 << 20))));
}

/// Nobody has to fail for as long as it takes until the next look at the free space is due.
#[test]
fn a_write_that_fails_on_a_full_disk_makes_the_next_one_find_room() {
    let disk = SmallDisk::mount(8 << 20);
    let store = store_on(&disk);
    put_range(&store, 0..50, LARGE_BYTES);
    fill(&disk, &store);
    put(&store, &content(100, 900)).unwrap();
    put(&store, &content(101, LARGE_BYTES)).unwrap();
    let others = File::options().append(true).open(disk.path().join("others")).unwrap();
    while (&others).write_all(&[1; 4096]).is_ok() {}
    assert!(matches!(put(&store, &content(102, LARGE_BYTES)), Err(Error::DiskFull)));
    put(&store, &content(102, LARGE_BYTES)).unwrap();
}

/// Cleaning a pack takes room before it makes some. Where there is none, eviction has to begin.
#[test]
fn a_disk_without_a_free_byte_is_cleared_by_evicting() {
    let disk = SmallDisk::mount(4 << 20);
    let store = store_on(&disk);
    let large = put_range(&store, 0..20, LARGE_BYTES);
    for n in 100..105 {
        let result = content(n, 10_000);
        store.put_result(&tenant(), &result_key("a"), Origin::Committed, &result).unwrap();
    }
    let small = put_range(&store, 200..230, 900);
    fill(&disk, &store);
    upload_until_there_is_room(&store).unwrap();
    assert!(is_missing(&store, &large[0]));
    assert!(store.find_missing(&tenant(), &large[15..]).is_empty());
    assert!(store.find_missing(&tenant(), &small).is_empty());
    let result = store.get_result(&tenant(), &result_key("a"), Serve::Any).unwrap().unwrap();
    assert_eq!(result.bytes, content(104, 10_000));
    put_range(&store, 300..305, LARGE_BYTES);
    assert_eq!(store.usage().upload_bytes, 0);
}

/// That a cached entry is evicted has to be written down. Where that cannot be, the entry stays, and content
/// goes instead of it: at once and from the disk, too.
#[test]
fn an_eviction_that_cannot_be_recorded_leaves_no_file_behind() {
    let disk = SmallDisk::mount(4 << 20);
    let store = store_on(&disk);
    let root = disk.path().join("store");
    let first = put(&store, &content(1, LARGE_BYTES)).unwrap();
    let names = ["a", "b", "c"];
    for name in names {
        store.put_result(&tenant(), &result_key(name), Origin::Committed, name.as_bytes()).unwrap();
    }
    let large = put_range(&store, 10..30, LARGE_BYTES);
    fill(&disk, &store);
    upload_until_there_is_room(&store).unwrap();
    assert_eq!(files(&root.join("temp")), [""; 0]);
    assert!(is_missing(&store, &first));
    assert!(store.find_missing(&tenant(), &large[15..]).is_empty());
    for name in names {
        let found = store.get_result(&tenant(), &result_key(name), Serve::Any).unwrap();
        assert_eq!(found.map(|result| result.bytes), Some(name.into()));
    }
}

#[test]
fn damaged_files_go_from_a_full_disk() {
    let disk = SmallDisk::mount(4 << 20);
    let store = store_on(&disk);
    let root = disk.path().join("store");
    // The first removal may still fit where nothing else did.
    let digests = put_range(&store, 0..3, LARGE_BYTES);
    fill(&disk, &store);
    for (seed, digest) in digests.iter().enumerate() {
        let path = only_file(&root, &digest.hash.to_string());
        let damage = [!content(seed as u64, 1)[0]];
        File::options().write(true).open(&path).unwrap().write_all(&damage).unwrap();
        assert!(matches!(get(&store, digest), Err(Error::Damaged(_))));
        assert!(!path.exists());
    }
    assert_eq!(files(&root.join("temp")), [""; 0]);
}

/// Room that was asked for and not found is not missing from the cap afterwards.
#[test]
fn what_finds_no_room_on_a_full_disk_takes_none_of_the_cap() {
    let disk = SmallDisk::mount(4 << 20);
    let store = store_on(&disk);
    let in_use = put_range(&store, 0..20, LARGE_BYTES);
    for n in 100..105 {
        let result = content(n, 10_000);
        store.put_result(&tenant(), &result_key("a"), Origin::Committed, &result).unwrap();
    }
    let small = put_range(&store, 200..230, 900);
    fill(&disk, &store);
    let tiny: Vec<Digest> = (0..100).map(|n| sha256(format!("{n}").as_bytes())).collect();
    let _pins = [&in_use, &small, &tiny].map(|digests| store.pin(&tenant(), digests));
    assert!(matches!(upload_until_there_is_room(&store), Err(Error::DiskFull)));
    assert_eq!(store.usage().upload_bytes, 0);
    assert!(store.find_missing(&tenant(), &in_use).is_empty());
    assert_eq!(files(&disk.path().join("store").join("temp")), [""; 0]);
    // As soon as the others give some back, everything goes on.
    fs::remove_file(disk.path().join("others")).unwrap();
    upload_until_there_is_room(&store).unwrap();
    put_range(&store, 300..305, LARGE_BYTES);
}
