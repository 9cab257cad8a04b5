//! Blobs move from a staging area into the view of a tenant, and are in one of them at every moment.

mod common;

use blobs::{Digest, DigestFunction::Sha256, Error, Options, Store, Tenant, TenantQuotas};
use common::*;

const LARGE_BYTES: usize = 20_000;

fn stage(store: &Store, seed: u64, bytes: usize) -> Digest {
    put_as(store, &tenant().staging_area("worker"), Sha256, &content(seed, bytes)).unwrap()
}

#[test]
fn a_staged_blob_is_seen_by_its_tenant_when_it_is_promoted_also_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let (tenant, area) = (tenant(), tenant().staging_area("worker"));
    let store = open(root.path());
    let staged = [stage(&store, 1, 500), stage(&store, 2, LARGE_BYTES), stage(&store, 3, 10)];
    let hidden = stage(&store, 4, LARGE_BYTES);
    assert_eq!(store.find_missing(&tenant, &staged), staged);
    let before = store.usage();
    store.promote(&area, &tenant, &staged).unwrap();
    store.promote(&area, &tenant, &staged).unwrap();
    let copy = tempfile::tempdir().unwrap();
    for store in [store, open_copy(root.path(), copy.path())] {
        assert!(store.find_missing(&tenant, &staged).is_empty());
        assert_eq!(store.find_missing(&tenant, &[hidden]), [hidden]);
        assert_eq!(get(&store, &staged[1]).unwrap(), content(2, LARGE_BYTES));
        assert_eq!(store.usage().file_bytes, before.file_bytes, "no large blob is there twice");
        assert!(!store.find_missing(&area, &staged[1..2]).is_empty());
        store.checkpoint().unwrap();
    }
}

/// The store of a process that ended without a word.
fn open_copy(root: &std::path::Path, copy: &std::path::Path) -> Store {
    let copied = std::process::Command::new("cp").arg("-a").arg(root.join(".")).arg(copy).status().unwrap();
    assert!(copied.success());
    open(copy)
}

#[test]
fn a_blob_that_is_not_staged_is_not_found_and_one_that_the_tenant_has_is_enough() {
    let root = tempfile::tempdir().unwrap();
    let (tenant, area, store) = (tenant(), tenant().staging_area("worker"), open(root.path()));
    let own = put(&store, &content(1, 500)).unwrap();
    let empty = sha256(b"");
    store.promote(&area, &tenant, &[own, empty]).unwrap();
    for bytes in [500, LARGE_BYTES] {
        let missing = sha256(&content(9, bytes));
        let refused = store.promote(&area, &tenant, &[missing]).unwrap_err();
        assert!(matches!(refused, Error::NotFound(digest) if digest == missing), "{refused:?}");
    }
    // The staging area of somebody else has nothing for it either.
    let staged = stage(&store, 2, 500);
    let other = tenant.staging_area("another worker");
    assert!(matches!(store.promote(&other, &tenant, &[staged]), Err(Error::NotFound(_))));
}

#[test]
fn staged_blobs_have_the_largest_quota_and_promoted_ones_count_for_that_of_the_tenant() {
    let root = tempfile::tempdir().unwrap();
    let largest = (Tenant::new("largest").unwrap(), Some(6 * LARGE_BYTES as u64));
    let quota = TenantQuotas::new(Some(2 * LARGE_BYTES as u64), [largest]);
    let store = Store::open(root.path(), Options { tenant_quotas: quota, ..options() }).unwrap();
    let (tenant, area) = (tenant(), tenant().staging_area("worker"));
    let staged: Vec<Digest> = (0..4).map(|seed| stage(&store, seed, LARGE_BYTES)).collect();
    assert!(store.find_missing(&area, &staged).is_empty());
    let _pin = store.pin(&tenant, &staged);
    let refused = store.promote(&area, &tenant, &staged).unwrap_err();
    assert!(matches!(refused, Error::TenantFull { .. }), "{refused:?}");
    assert_eq!(store.find_missing(&tenant, &staged), staged[1..]);
    assert_eq!(store.find_missing(&area, &staged[1..]), []);
    assert_eq!(store.usage().upload_bytes, 0);
    for seed in 4..12 {
        stage(&store, seed, LARGE_BYTES);
    }
    assert_eq!(store.find_missing(&area, &staged[1..]), staged[1..], "a staging area has a bound");
}
