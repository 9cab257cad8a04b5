//! Cached results and raw entries.

mod common;

use blobs::{ActionKey, Error, Hash, MAX_RESULT_BYTES, Origin, RawKey, Serve, Tenant};
use common::*;

fn key(instance: &str, action: &[u8]) -> ActionKey {
    ActionKey { instance: instance.into(), action: sha256(action) }
}

#[test]
fn execute_is_served_only_what_the_coordinator_committed() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let key = key("main", b"action");
    let get =
        |serve| store.get_result(&tenant(), &key, serve).unwrap().map(|result| (result.origin, result.bytes));
    assert_eq!(get(Serve::Any), None);
    store.put_result(&tenant(), &key, Origin::Uploaded, b"uploaded").unwrap();
    assert_eq!(get(Serve::Committed), None);
    assert_eq!(get(Serve::Any), Some((Origin::Uploaded, "uploaded".into())));
    store.put_result(&tenant(), &key, Origin::Committed, b"committed").unwrap();
    store.put_result(&tenant(), &key, Origin::Uploaded, b"uploaded again").unwrap();
    assert_eq!(get(Serve::Committed), Some((Origin::Committed, "committed".into())));
    assert_eq!(get(Serve::Any), Some((Origin::Committed, "committed".into())));
}

#[test]
fn a_later_result_replaces_an_earlier_one_also_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let key = key("main", b"action");
    for n in 0..5u8 {
        let store = open(root.path());
        for m in 0..3u8 {
            store.put_result(&tenant(), &key, Origin::Committed, &[n, m]).unwrap();
        }
        if n == 2 {
            store.close().unwrap();
        }
    }
    let found = open(root.path()).get_result(&tenant(), &key, Serve::Any).unwrap().unwrap();
    assert_eq!(found.bytes, [4u8, 2].as_slice());
}

#[test]
fn a_removed_result_stays_removed_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let key = key("main", b"action");
    let store = open(root.path());
    store.put_result(&tenant(), &key, Origin::Committed, b"1").unwrap();
    store.put_result(&tenant(), &key, Origin::Uploaded, b"2").unwrap();
    store.remove_result(&tenant(), &key).unwrap();
    store.remove_result(&tenant(), &key).unwrap();
    assert_eq!(store.get_result(&tenant(), &key, Serve::Any).unwrap(), None);
    drop(store);
    let store = open(root.path());
    assert_eq!(store.get_result(&tenant(), &key, Serve::Any).unwrap(), None);
    store.put_result(&tenant(), &key, Origin::Uploaded, b"3").unwrap();
    drop(store);
    assert!(open(root.path()).get_result(&tenant(), &key, Serve::Any).unwrap().is_some());
}

#[test]
fn tenants_instances_and_actions_have_results_of_their_own() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    store.put_result(&tenant(), &key("main", b"action"), Origin::Committed, b"1").unwrap();
    let other = Tenant::new("other").unwrap();
    for (tenant, key) in [
        (&other, key("main", b"action")),
        (&tenant(), key("", b"action")),
        (&tenant(), key("main2", b"action")),
        (&tenant(), key("main", b"other action")),
    ] {
        assert_eq!(store.get_result(tenant, &key, Serve::Any).unwrap(), None, "{key:?}");
    }
}

#[test]
fn results_and_names_beyond_their_bounds_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let large = vec![1; MAX_RESULT_BYTES as usize];
    store.put_result(&tenant(), &key("main", b"a"), Origin::Committed, &large).unwrap();
    let found = store.get_result(&tenant(), &key("main", b"a"), Serve::Committed).unwrap().unwrap();
    assert!(found.bytes == large);
    let larger = vec![1; MAX_RESULT_BYTES as usize + 1];
    let refused = store.put_result(&tenant(), &key("main", b"b"), Origin::Committed, &larger);
    assert!(matches!(refused, Err(Error::TooLarge { .. })));
    let endless = store.get_result(&tenant(), &key(&"i".repeat(1025), b"a"), Serve::Any);
    assert!(matches!(endless, Err(Error::TooLarge { .. })));
}

/// Whatever ccache puts under a key is nobody's action result.
#[test]
fn raw_entries_are_a_space_of_their_own() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let action = key("", b"action");
    let raw = RawKey { prefix: "".into(), key: action.action.hash };
    assert_eq!(store.get_raw(&tenant(), &raw).unwrap(), None);
    let body = put(&store, &content(1, 5000)).unwrap();
    store.put_raw(&tenant(), &raw, &body).unwrap();
    assert_eq!(store.get_raw(&tenant(), &raw).unwrap(), Some(body));
    assert_eq!(store.get_result(&tenant(), &action, Serve::Any).unwrap(), None);
    let elsewhere = RawKey { prefix: "cache".into(), ..raw.clone() };
    assert_eq!(store.get_raw(&tenant(), &elsewhere).unwrap(), None);
    let replaced = put(&store, &content(2, 50)).unwrap();
    store.put_raw(&tenant(), &raw, &replaced).unwrap();
    drop(store);
    assert_eq!(open(root.path()).get_raw(&tenant(), &raw).unwrap(), Some(replaced));
}

#[test]
fn a_raw_entry_without_its_body_is_missing() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let raw = RawKey { prefix: "".into(), key: Hash([7; 32]) };
    assert!(matches!(store.put_raw(&tenant(), &raw, &sha256(b"?")), Err(Error::NotFound(_))));
    let body = put(&store, &content(1, 5000)).unwrap();
    store.put_raw(&tenant(), &raw, &body).unwrap();
    std::fs::remove_file(only_file(root.path(), &body.hash.to_string())).unwrap();
    assert!(matches!(get(&store, &body), Err(Error::NotFound(_))));
    assert_eq!(store.get_raw(&tenant(), &raw).unwrap(), None);
}
