//! Random histories against a model that is a map.

mod common;

use std::collections::HashMap;

use blobs::{ActionKey, Digest, Options, Origin, Serve, Store, UploadRequest};
use bytes::Bytes;
use common::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Put { seed: u64, bytes: usize },
    UploadHalf { seed: u64, bytes: usize },
    Find { seed: u64, bytes: usize },
    PutResult { action: u8, value: u16 },
    RemoveResult { action: u8 },
    Checkpoint,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let blob = || (0u64..12, prop_oneof![1usize..1000, 1001usize..6000]);
    let step = prop_oneof![
        6 => blob().prop_map(|(seed, bytes)| Step::Put { seed, bytes }),
        1 => blob().prop_map(|(seed, bytes)| Step::UploadHalf { seed, bytes }),
        2 => blob().prop_map(|(seed, bytes)| Step::Find { seed, bytes }),
        3 => (0u8..4, any::<u16>()).prop_map(|(action, value)| Step::PutResult { action, value }),
        1 => (0u8..4).prop_map(|action| Step::RemoveResult { action }),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..80)
}

fn action(action: u8) -> ActionKey {
    ActionKey { instance: "main".into(), action: sha256(&[action]) }
}

/// Runs a history, and compares after every step. With a small cap things may be missing, but never wrong.
fn run(steps: Vec<Step>, cap_bytes: u64) {
    let root = tempfile::tempdir().unwrap();
    let options = Options { cap_bytes, pack_bytes: 8 << 10, ..options() };
    let mut store = Store::open(root.path(), options.clone()).unwrap();
    let is_roomy = cap_bytes > 1 << 20;
    let mut blobs: HashMap<Digest, Bytes> = HashMap::new();
    let mut results: HashMap<u8, u16> = HashMap::new();
    for step in steps {
        match step {
            Step::Put { seed, bytes } => {
                let content = content(seed * 10_000 + bytes as u64, bytes);
                let digest = put(&store, &content).unwrap();
                assert_eq!(get(&store, &digest).unwrap(), content);
                blobs.insert(digest, content);
            }
            Step::UploadHalf { seed, bytes } => {
                let content = content(seed * 10_000 + bytes as u64, bytes);
                let request = UploadRequest::named(sha256(&content), "u", 0);
                if let Some(mut upload) = store.write(&tenant(), &request).unwrap() {
                    upload.write(0, &content[..bytes / 2]).unwrap();
                }
            }
            Step::Find { seed, bytes } => {
                let digest = sha256(&content(seed * 10_000 + bytes as u64, bytes));
                assert!(blobs.contains_key(&digest) || is_missing(&store, &digest));
            }
            Step::PutResult { action: n, value } => {
                store.put_result(&tenant(), &action(n), Origin::Committed, &value.to_le_bytes()).unwrap();
                results.insert(n, value);
            }
            Step::RemoveResult { action: n } => {
                store.remove_result(&tenant(), &action(n)).unwrap();
                results.remove(&n);
            }
            Step::Checkpoint => store.checkpoint().unwrap(),
            Step::Restart => {
                drop(store);
                store = Store::open(root.path(), options.clone()).unwrap();
            }
        }
        let usage = store.usage();
        assert!(usage.pack_bytes + usage.file_bytes + usage.upload_bytes <= cap_bytes, "{usage:?}");
        for n in 0..4 {
            let found = store.get_result(&tenant(), &action(n), Serve::Committed).unwrap();
            let expected = results.get(&n).map(|value| value.to_le_bytes().to_vec());
            match found {
                Some(found) => assert_eq!(Some(found.bytes.to_vec()), expected),
                None => assert!(!is_roomy && expected.is_some() || expected.is_none()),
            }
        }
    }
    for (digest, content) in &blobs {
        match get(&store, digest) {
            Ok(found) => assert_eq!(&found, content),
            Err(_) => assert!(!is_roomy && is_missing(&store, digest)),
        }
    }
    let packs = files(root.path()).into_iter().filter(|path| path.ends_with(".pack"));
    let bytes: u64 = packs.map(|path| root.path().join(path).metadata().unwrap().len()).sum();
    assert_eq!(bytes, store.usage().pack_bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_roomy_store_is_a_map(steps in steps()) {
        run(steps, 1 << 30);
    }

    #[test]
    fn a_crowded_store_forgets_but_never_lies(steps in steps()) {
        run(steps, 40_000);
    }
}
