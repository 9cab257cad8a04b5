//! Many threads in a store that is too small for what they do: eviction, cleaning, reading, uploading and
//! damage at once. Nothing read is ever wrong, and in the end the books agree with the disk.

mod common;

use std::sync::{
    Barrier,
    atomic::{AtomicUsize, Ordering},
};

use blobs::{ActionKey, Error, Options, Origin, Serve, Store, UploadRequest};
use bytes::Bytes;
use common::*;

const THREADS: u64 = 4;
const ROUNDS: u64 = 1500;
const KINDS: u64 = 300;

/// Content by number, small and large in turn; the number is at its start, so that a mix-up shows.
fn numbered(n: u64) -> Bytes {
    let mut bytes =
        content(n, if n % 5 == 0 { 3000 + n as usize * 20 } else { 50 + n as usize * 3 }).to_vec();
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes.into()
}

fn work(store: &Store, seed: u64, found: &AtomicUsize) {
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..ROUNDS {
        let n = random.u64(0..KINDS);
        let content = numbered(n);
        let digest = sha256(&content);
        match random.u32(0..10) {
            0..3 => match put(store, &content) {
                Ok(_) | Err(Error::Full { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            3..7 => match get(store, &digest) {
                Ok(read) => {
                    assert!(read == content);
                    found.fetch_add(1, Ordering::Relaxed);
                }
                Err(Error::NotFound(_)) => {}
                Err(error) => panic!("{error}"),
            },
            7 => {
                let request = UploadRequest::named(digest, &format!("{}", round % 3), 0);
                let Ok(Some(mut upload)) = store.write(&tenant(), &request) else { continue };
                let half = content.len() / 2;
                if upload.write(0, &content[..half]).is_ok() && random.bool() {
                    let _ = upload.write(half as u64, &content[half..]).and_then(|_| upload.finish());
                }
            }
            8 => {
                let _pin = store.pin(&tenant(), &[digest]);
                if put(store, &content).is_ok() {
                    put(store, &numbered(random.u64(0..KINDS))).ok();
                    assert!(get(store, &digest).unwrap() == content, "it is pinned");
                }
            }
            _ => {
                let key = ActionKey { instance: "main".into(), action: digest };
                if random.bool() {
                    store.put_result(&tenant(), &key, Origin::Committed, &content[..20]).ok();
                } else if let Some(result) = store.get_result(&tenant(), &key, Serve::Any).unwrap() {
                    assert_eq!(result.bytes, content[..20]);
                }
            }
        }
    }
}

#[test]
fn a_crowd_in_a_small_store_never_reads_anything_wrong() {
    for background in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let options = Options { cap_bytes: 300_000, pack_bytes: 16 << 10, background, ..options() };
        let store = Store::open(root.path(), options.clone()).unwrap();
        let (barrier, found) = (Barrier::new(THREADS as usize), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for seed in 0..THREADS {
                let (store, barrier, found) = (&store, &barrier, &found);
                scope.spawn(move || {
                    barrier.wait();
                    work(store, seed, found);
                });
            }
        });
        assert!(found.load(Ordering::Relaxed) > 100);
        store.maintain(std::time::Instant::now() + options.upload_idle * 2);
        assert_eq!((store.open_uploads(), store.usage().upload_bytes), (0, 0));
        let usage = store.usage();
        assert!(usage.pack_bytes + usage.file_bytes <= usage.cap_bytes, "{usage:?}");
        drop(store);
        let on_disk = |is_wanted: fn(&str) -> bool| -> u64 {
            let wanted = files(root.path()).into_iter().filter(|path| is_wanted(path));
            wanted.map(|path| root.path().join(path).metadata().unwrap().len()).sum()
        };
        assert_eq!(on_disk(|path| path.ends_with(".pack")), usage.pack_bytes);
        assert_eq!(on_disk(|path| path.starts_with("files")), usage.file_bytes);
        assert_eq!(on_disk(|path| path.starts_with("temp")), 0);
        let store = Store::open(root.path(), options).unwrap();
        assert_eq!(store.usage().file_bytes, usage.file_bytes);
        for n in 0..KINDS {
            match get(&store, &sha256(&numbered(n))) {
                Ok(read) => assert!(read == numbered(n)),
                Err(error) => assert!(matches!(error, Error::NotFound(_)), "{error}"),
            }
        }
    }
}
