//! Files that were evicted and came back before a power loss: an old list still speaks of them.

mod common;

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    time::{Duration, SystemTime},
};

use blobs::{Error, Options, Store};
use bytes::Bytes;
use common::*;

const LARGE_BYTES: usize = 600_000;
const HOUR: Duration = Duration::from_secs(3600);

fn open_small(root: &Path) -> Store {
    Store::open(root, Options { cap_bytes: 4 * LARGE_BYTES as u64, ..options() }).unwrap()
}

/// A store with a blob that is listed, was evicted, and is there again since the list was made. The answer is
/// how long the pack was before it came back.
fn store_again(root: &Path, again: &Bytes) -> u64 {
    let store = open_small(root);
    let digest = put(&store, again).unwrap();
    // So much is in use in the pack that it is not cleaned.
    let small: Vec<_> = (0..40).map(|n| put(&store, &content(n + 10, 900)).unwrap()).collect();
    let _pin = store.pin(&tenant(), &small);
    store.checkpoint().unwrap();
    for n in 100..104 {
        put(&store, &content(n, LARGE_BYTES)).unwrap();
    }
    assert!(is_missing(&store, &digest));
    let pack_bytes = store.usage().pack_bytes;
    put(&store, again).unwrap();
    pack_bytes
}

/// Another file in the place of a blob's.
fn replace(path: &Path, bytes: &[u8], age: Duration) {
    fs::remove_file(path).unwrap();
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

/// D8: whether or not the pack kept the record of the second upload.
#[test]
fn a_file_that_came_back_is_not_vouched_for_by_its_old_record() {
    let again = content(1, LARGE_BYTES);
    let digest = sha256(&again);
    for (bytes, is_whole) in [
        (Vec::new(), false),
        (again[..LARGE_BYTES - 1].to_vec(), false),
        (vec![0; LARGE_BYTES], false),
        (again.to_vec(), true),
    ] {
        // Without the record, the file's time gives it away; with it, no clock has to be right.
        for (is_record_lost, age) in [(false, HOUR), (true, Duration::ZERO)] {
            let root = tempfile::tempdir().unwrap();
            let pack_bytes = store_again(root.path(), &again);
            if is_record_lost {
                let pack = File::options().write(true).open(only_file(root.path(), ".pack")).unwrap();
                pack.set_len(pack_bytes).unwrap();
            }
            let path = only_file(root.path(), &digest.hash.to_string());
            replace(&path, &bytes, age);
            // It is no different at the second start, when the first one has listed what it found.
            open_small(root.path()).close().unwrap();
            let store = open_small(root.path());
            assert_eq!(store.find_missing(&tenant(), &[digest]).is_empty(), is_whole, "{is_record_lost}");
            assert_eq!(path.exists(), is_whole);
            put(&store, &again).unwrap();
            assert_eq!(get(&store, &digest).unwrap(), again);
        }
    }
}

/// What was on disk before the last checkpoint is left to its first reader, so that a start is quick.
#[test]
fn a_start_reads_no_file_from_before_the_last_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let digest = put(&store, &content(1, LARGE_BYTES)).unwrap();
    store.close().unwrap();
    let path = only_file(root.path(), &digest.hash.to_string());
    replace(&path, &[0; LARGE_BYTES], HOUR);
    let store = open(root.path());
    assert_eq!(store.find_missing(&tenant(), &[digest]), []);
    assert!(matches!(get(&store, &digest), Err(Error::Damaged(_))));
    assert!(is_missing(&store, &digest));
}
