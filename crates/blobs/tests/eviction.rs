//! Staying within the cap: what goes, what stays, and what is told when nothing can go.

mod common;

use blobs::{
    ActionKey, Digest, DigestFunction, Error, Expect, Options, Origin, Serve, Store, Tenant, TenantQuotas,
    UploadRequest,
};
use bytes::Bytes;
use common::*;

const LARGE_BYTES: usize = 20_000;

/// Room for a few large blobs.
fn small_store(root: &std::path::Path, cap_bytes: u64) -> Store {
    Store::open(root, Options { cap_bytes, pack_bytes: 8 << 10, ..options() }).unwrap()
}

fn put_range(store: &Store, seeds: std::ops::Range<u64>, bytes: usize) {
    for seed in seeds {
        put(store, &content(seed, bytes)).unwrap();
    }
}

fn bytes_on_disk(root: &std::path::Path) -> u64 {
    let blobs = files(root).into_iter().filter(|path| path.ends_with(".pack") || path.starts_with("files"));
    blobs.map(|path| root.join(path).metadata().unwrap().len()).sum()
}

#[test]
fn the_least_recently_used_blob_goes_first() {
    let root = tempfile::tempdir().unwrap();
    let store = small_store(root.path(), 5 * LARGE_BYTES as u64);
    let digests: Vec<Digest> = (0..4).map(|n| put(&store, &content(n, LARGE_BYTES)).unwrap()).collect();
    // Each of the ways of using a blob counts.
    get(&store, &digests[0]).unwrap();
    assert_eq!(store.find_missing(&tenant(), &digests[1..2]), []);
    put(&store, &content(10, LARGE_BYTES)).unwrap();
    assert!(is_missing(&store, &digests[2]));
    put(&store, &content(11, LARGE_BYTES)).unwrap();
    assert!(is_missing(&store, &digests[3]));
    assert!(store.find_missing(&tenant(), &digests[..2]).is_empty());
    put(&store, &content(12, LARGE_BYTES)).unwrap();
    let missing = store.find_missing(&tenant(), &[sha256(&content(10, LARGE_BYTES)), digests[0], digests[1]]);
    assert_eq!(missing, [sha256(&content(10, LARGE_BYTES))]);
    assert_eq!(files(&root.path().join("files")).len(), 4);
}

#[test]
fn what_is_pinned_stays_until_it_is_let_go() {
    let root = tempfile::tempdir().unwrap();
    let store = small_store(root.path(), 5 * LARGE_BYTES as u64);
    let inputs = [content(1, LARGE_BYTES), content(2, 500), content(3, LARGE_BYTES)];
    let digests = inputs.each_ref().map(|content| sha256(content));
    // Pinned before they are uploaded: no gap in which one could go.
    let pin = store.pin(&tenant(), &digests);
    let again = store.pin(&tenant(), &digests[..1]);
    inputs.iter().for_each(|content| assert!(put(&store, content).is_ok()));
    for n in 100..130 {
        put(&store, &content(n, LARGE_BYTES)).unwrap();
        put(&store, &content(n + 100, 900)).unwrap();
        assert!(store.find_missing(&tenant(), &digests).is_empty(), "{n}");
    }
    for (digest, content) in digests.iter().zip(&inputs) {
        assert_eq!(&get(&store, digest).unwrap(), content);
    }
    drop(pin);
    put_range(&store, 130..150, LARGE_BYTES);
    assert_eq!(store.find_missing(&tenant(), &digests), digests[1..]);
    drop(again);
    put_range(&store, 150..170, LARGE_BYTES);
    assert_eq!(store.find_missing(&tenant(), &digests), digests);
}

#[test]
fn a_store_full_of_what_is_in_use_says_so_and_recovers() {
    let root = tempfile::tempdir().unwrap();
    let store = small_store(root.path(), 3 * LARGE_BYTES as u64);
    let digests: Vec<Digest> = (0..2).map(|n| put(&store, &content(n, LARGE_BYTES)).unwrap()).collect();
    let pin = store.pin(&tenant(), &digests);
    assert!(matches!(put(&store, &content(9, LARGE_BYTES)), Err(Error::Full { .. })));
    assert!(matches!(put(&store, &content(9, 2 * LARGE_BYTES)), Err(Error::Full { .. })));
    assert_eq!(files(&root.path().join("temp")), [""; 0]);
    assert_eq!(store.usage().upload_bytes, 0);
    assert!(store.find_missing(&tenant(), &digests).is_empty());
    drop(pin);
    put(&store, &content(9, 2 * LARGE_BYTES)).unwrap();
}

/// A7: what an upload has written counts, and is not taken from it.
#[test]
fn an_upload_in_progress_keeps_what_it_has() {
    let root = tempfile::tempdir().unwrap();
    let store = small_store(root.path(), 5 * LARGE_BYTES as u64);
    let whole = content(1, LARGE_BYTES);
    let mut upload = store.write(&tenant(), &UploadRequest::named(sha256(&whole), "u", 0)).unwrap().unwrap();
    upload.write(0, &whole[..15_000]).unwrap();
    for n in 10..30 {
        put(&store, &content(n, LARGE_BYTES)).unwrap();
        let usage = store.usage();
        assert!(usage.pack_bytes + usage.file_bytes + usage.upload_bytes <= usage.cap_bytes);
    }
    upload.write(15_000, &whole[15_000..]).unwrap();
    upload.finish().unwrap();
    assert_eq!(get(&store, &sha256(&whole)).unwrap(), whole);
}

#[test]
fn an_upload_that_announces_much_displaces_nothing_until_it_sends_it() {
    let root = tempfile::tempdir().unwrap();
    let store = small_store(root.path(), 5 * LARGE_BYTES as u64);
    let digest = put(&store, &content(1, LARGE_BYTES)).unwrap();
    let huge = Digest { size: 1 << 30, ..sha256(b"never sent") };
    let mut upload = store.write(&tenant(), &UploadRequest::new(Expect::Digest(huge))).unwrap().unwrap();
    upload.write(0, b"hello").unwrap();
    assert!(!is_missing(&store, &digest));
}

/// Packs are cleaned: the bytes on disk stay below the cap although only small blobs come and go.
#[test]
fn small_blobs_come_and_go_within_the_cap() {
    let root = tempfile::tempdir().unwrap();
    let cap = 100_000;
    let store = small_store(root.path(), cap);
    let keep: Vec<Digest> = (0..20).map(|n| put(&store, &content(n, 600)).unwrap()).collect();
    for n in 1000..3000 {
        put(&store, &content(n, 100 + n as usize % 900)).unwrap();
        // In use all the time, so they move from pack to pack.
        assert!(store.find_missing(&tenant(), &keep).is_empty(), "{n}");
        let usage = store.usage();
        assert!(usage.pack_bytes <= cap, "{usage:?}");
    }
    assert_eq!(bytes_on_disk(root.path()), store.usage().pack_bytes);
    assert!(store.usage().blobs > 60, "{:?}", store.usage());
    for (n, digest) in keep.iter().enumerate() {
        assert_eq!(get(&store, digest).unwrap(), content(n as u64, 600));
    }
    drop(store);
    let store = small_store(root.path(), cap);
    assert!(store.find_missing(&tenant(), &keep).is_empty());
    assert_eq!(bytes_on_disk(root.path()), store.usage().pack_bytes);
}

#[test]
fn removals_stay_within_the_cap() {
    let root = tempfile::tempdir().unwrap();
    let store = small_store(root.path(), 40_000);
    let action = |n: u8| ActionKey { instance: "main".into(), action: sha256(&[n]) };
    put_range(&store, 0..60, 900);
    for n in 0..40 {
        store.put_result(&tenant(), &action(n), Origin::Committed, &[n]).unwrap();
    }
    for n in 0..40 {
        store.remove_result(&tenant(), &action(n)).unwrap();
        assert!(bytes_on_disk(root.path()) <= 40_000, "{n}: {:?}", store.usage());
        assert_eq!(store.get_result(&tenant(), &action(n), Serve::Committed).unwrap(), None);
    }
}

#[test]
fn readers_finish_although_their_blob_is_evicted() {
    let root = tempfile::tempdir().unwrap();
    let store = small_store(root.path(), 900_000);
    let large = content(1, 600_000);
    let digest = put(&store, &large).unwrap();
    let mut reader = store.read(&tenant(), &digest, 0, None).unwrap();
    let mut read = reader.next_piece().unwrap().unwrap().to_vec();
    put(&store, &content(2, 600_000)).unwrap();
    assert!(is_missing(&store, &digest));
    while let Some(piece) = reader.next_piece().unwrap() {
        read.extend_from_slice(&piece);
    }
    assert_eq!(read, large);
}

/// An entry that was replaced must not come back when its successor is evicted.
#[test]
fn an_evicted_entry_leaves_no_older_one_behind() {
    let root = tempfile::tempdir().unwrap();
    let key = ActionKey { instance: "main".into(), action: sha256(b"an action") };
    let store = small_store(root.path(), 40_000);
    store.put_result(&tenant(), &key, Origin::Committed, b"first").unwrap();
    // In use all the time, so the pack of the first result is not cleaned away before the end.
    let pinned: Vec<Digest> = (0..8).map(|n| sha256(&content(n, 990))).collect();
    let _pin = store.pin(&tenant(), &pinned);
    put_range(&store, 0..8, 990);
    store.put_result(&tenant(), &key, Origin::Committed, b"second").unwrap();
    for n in 100..200 {
        put(&store, &content(n, 900)).unwrap();
        if store.get_result(&tenant(), &key, Serve::Any).unwrap().is_none() {
            break;
        }
        if n % 10 == 0 {
            copy_and_check(root.path(), &key, Some(b"second"));
        }
    }
    put_range(&store, 200..230, 900);
    assert_eq!(store.get_result(&tenant(), &key, Serve::Any).unwrap(), None);
    copy_and_check(root.path(), &key, None);
}

fn copy_and_check(root: &std::path::Path, key: &ActionKey, expected: Option<&'static [u8]>) {
    let copied = tempfile::tempdir().unwrap();
    copy(root, copied.path());
    let found = small_store(copied.path(), 40_000).get_result(&tenant(), key, Serve::Any).unwrap();
    assert_eq!(found.map(|result| result.bytes), expected.map(Bytes::from_static));
}

/// A thread of the store's own makes room before writers need it.
#[test]
fn the_background_thread_tidies_up_and_ends_with_the_store() {
    let root = tempfile::tempdir().unwrap();
    let options = Options { cap_bytes: 200_000, pack_bytes: 8 << 10, background: true, ..options() };
    let store = Store::open(root.path(), options.clone()).unwrap();
    for n in 0..500 {
        put(&store, &content(n, 900)).unwrap();
        put(&store, &content(n + 1000, 5000)).unwrap();
        let usage = store.usage();
        // While a pack is cleaned, its live bytes are there twice.
        assert!(usage.pack_bytes + usage.file_bytes <= usage.cap_bytes + options.pack_bytes, "{usage:?}");
    }
    drop(store);
    // It can be opened again at once: nothing holds on to it.
    Store::open(root.path(), options).unwrap();
}

#[test]
fn a_lower_cap_is_reached_when_the_store_is_opened_with_it() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    put_range(&store, 0..20, LARGE_BYTES);
    drop(store);
    let store = small_store(root.path(), 5 * LARGE_BYTES as u64);
    store.maintain(std::time::Instant::now());
    let usage = store.usage();
    assert!(usage.pack_bytes + usage.file_bytes <= usage.cap_bytes, "{usage:?}");
    assert!(store.find_missing(&tenant(), &[sha256(&content(19, LARGE_BYTES))]).is_empty());
}

/// A store in which one tenant may have room for about five large blobs.
fn store_with_quota(root: &std::path::Path, small: &Tenant) -> Store {
    let quota = Some(5 * LARGE_BYTES as u64 + 5_000);
    let tenant_quotas = TenantQuotas::new(None, [(small.clone(), quota)]);
    Store::open(root, Options { tenant_quotas, ..options() }).unwrap()
}

#[test]
fn a_tenant_beyond_its_quota_loses_its_own_oldest_blobs_and_no_others() {
    let (root, small) = (tempfile::tempdir().unwrap(), Tenant::new("small").unwrap());
    let store = store_with_quota(root.path(), &small);
    let others: Vec<Digest> = (0..8).map(|n| put(&store, &content(n, LARGE_BYTES)).unwrap()).collect();
    let own = |store: &Store, seed: u64, bytes: usize| {
        put_as(store, &small, DigestFunction::Sha256, &content(seed, bytes))
    };
    let first: Vec<Digest> = (10..14).map(|n| own(&store, n, LARGE_BYTES).unwrap()).collect();
    assert!(store.find_missing(&small, &first[..1]).is_empty(), "looking counts as use");
    for n in 20..23 {
        own(&store, n, LARGE_BYTES).unwrap();
    }
    assert_eq!(
        store.find_missing(&small, &first),
        first[1..3],
        "the oldest went, the one that was used did not"
    );
    for n in 100..110 {
        own(&store, n, 900).unwrap();
    }
    assert!(store.find_missing(&tenant(), &others).is_empty());

    // Counted again at a start.
    drop(store);
    let store = store_with_quota(root.path(), &small);
    let before = store.find_missing(&small, &first).len();
    for n in 30..34 {
        own(&store, n, LARGE_BYTES).unwrap();
    }
    assert!(store.find_missing(&small, &first).len() > before);
    assert!(store.find_missing(&tenant(), &others).is_empty());
}

#[test]
fn what_does_not_fit_into_a_quota_is_refused_and_takes_nothing() {
    let (root, small) = (tempfile::tempdir().unwrap(), Tenant::new("small").unwrap());
    let store = store_with_quota(root.path(), &small);
    let digests: Vec<Digest> = (0..4)
        .map(|n| put_as(&store, &small, DigestFunction::Sha256, &content(n, LARGE_BYTES)).unwrap())
        .collect();
    let refused = |answer: &Result<Digest, Error>| matches!(answer, Err(Error::TenantFull { .. }));
    let huge = put_as(&store, &small, DigestFunction::Sha256, &content(9, 6 * LARGE_BYTES));
    assert!(refused(&huge), "{huge:?}");
    // Announced without a size, it is refused as it comes.
    let request = UploadRequest::new(Expect::Anything(DigestFunction::Sha256));
    let mut upload = store.write(&small, &request).unwrap().unwrap();
    let piece = content(9, LARGE_BYTES);
    let written = (0..6).find_map(|n| upload.write(n * LARGE_BYTES as u64, &piece).err());
    assert!(matches!(written, Some(Error::TenantFull { .. })), "{written:?}");
    drop(upload);
    assert!(store.find_missing(&small, &digests).is_empty(), "nothing was evicted for what cannot fit");

    let pin = store.pin(&small, &digests);
    let pinned = put_as(&store, &small, DigestFunction::Sha256, &content(10, 2 * LARGE_BYTES));
    assert!(refused(&pinned), "{pinned:?}");
    drop(pin);
    assert!(put_as(&store, &small, DigestFunction::Sha256, &content(10, 2 * LARGE_BYTES)).is_ok());
    assert_eq!(store.usage().upload_bytes, 0);
}

/// Regression: results counted toward the quota and were never evicted for it, so that a tenant with many results could
/// upload nothing any more, and each upload scanned the whole index in vain.
#[test]
fn a_tenant_whose_quota_is_full_of_results_loses_the_oldest_of_them() {
    let (root, small) = (tempfile::tempdir().unwrap(), Tenant::new("small").unwrap());
    let action = |n: u64| ActionKey { instance: "".into(), action: sha256(&content(n, 10)) };
    let kept = |store: &Store, n: u64| store.get_result(&small, &action(n), Serve::Any).unwrap().is_some();
    {
        let store = store_with_quota(root.path(), &small);
        for n in 0..200 {
            store.put_result(&small, &action(n), Origin::Committed, &[7; 1_000]).unwrap();
        }
        let uploaded = put_as(&store, &small, DigestFunction::Sha256, &content(1_000, LARGE_BYTES));
        assert!(uploaded.is_ok(), "{uploaded:?}");
        assert!(!kept(&store, 0), "the oldest result goes");
        assert!(kept(&store, 199), "the newest result stays");
    }
    let store = store_with_quota(root.path(), &small);
    assert!(!kept(&store, 0), "a result that was evicted does not come back");
    assert!(kept(&store, 199));
}
