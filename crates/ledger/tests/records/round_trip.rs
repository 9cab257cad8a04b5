//! Round trips: every encoded record and entry decodes to itself.

use std::sync::Arc;

use authority::{Actor, ActorKind, Owner, Position, State, StoredKey, Time, TokenKey};
use ledger::digest::state_digest;
use ledger::record::snapshot::{self, BlockDecoder, SnapshotEntry};
use ledger::record::{decode, encode};
use proptest::prelude::*;

use crate::{samples, strategies};

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_record_decodes_to_itself(record in strategies::record()) {
        let mut bytes = Vec::new();
        encode(record.at, record.prev, &record.event, &mut bytes);
        prop_assert_eq!(decode(&bytes), Ok(record));
    }

    #[test]
    fn a_task_entry_decodes_to_the_same_task_and_queue((queue, task) in strategies::task()) {
        let mut block = Vec::new();
        snapshot::encode_task(&queue, &task, &mut block);
        let expected = SnapshotEntry::Task { queue: Arc::new(queue), task: Box::new(task) };
        prop_assert_eq!(BlockDecoder::default().entries(&block).collect::<Vec<_>>(), vec![Ok(expected)]);
    }

    #[test]
    fn many_entries_share_a_block(
        (queue, task) in strategies::task(),
        key in strategies::queue_key(),
        config in strategies::queue_config(),
        api_key in strategies::api_key(),
        numbers in any::<[u64; 5]>(),
    ) {
        let [begin, time, epoch, owned, since] = numbers;
        let owner = Owner { epoch, node: "node-1".into(), since: Position(owned) };
        let token_key = TokenKey { id: "key-1".into(), since: Position(since) };
        let stored = StoredKey { key: Arc::new(api_key), created_at: Time(time), since: Position(since) };
        let mut block = Vec::new();
        snapshot::encode_header(Position(begin), Time(time), &mut block);
        snapshot::encode_queue(&key, &config, Position(since), &mut block);
        snapshot::encode_task(&queue, &task, &mut block);
        snapshot::encode_owner(&owner, &mut block);
        snapshot::encode_token_key(&token_key, &mut block);
        snapshot::encode_key(&stored, &mut block);
        let expected = vec![
            Ok(SnapshotEntry::Header { begin: Position(begin), time: Time(time), format: snapshot::FORMAT }),
            Ok(SnapshotEntry::Queue { key: Arc::new(key), config, configured: Position(since) }),
            Ok(SnapshotEntry::Task { queue: Arc::new(queue), task: Box::new(task) }),
            Ok(SnapshotEntry::Owner(owner)),
            Ok(SnapshotEntry::TokenKey(token_key)),
            Ok(SnapshotEntry::Key(stored)),
        ];
        prop_assert_eq!(BlockDecoder::default().entries(&block).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn encoding_appends_and_leaves_the_buffer_as_it_was() {
    let record = crate::samples::records().remove(0);
    let mut alone = Vec::new();
    record.encode(&mut alone);
    let mut after = b"before".to_vec();
    record.encode(&mut after);
    assert_eq!(after, [b"before".as_slice(), &alone].concat());
}

#[test]
fn a_task_that_requires_nothing_shares_its_properties_with_the_others() {
    let mut bytes = Vec::new();
    let mut records = crate::samples::records();
    let authority::Event::TaskCreated(created) = &mut records[0].event else { panic!("the first is a task") };
    created.properties = Arc::default();
    records[0].encode(&mut bytes);
    let properties = || match decode(&bytes).expect("it was just encoded").event {
        authority::Event::TaskCreated(created) => created.properties,
        other => panic!("{} is not a task", other.name()),
    };
    assert!(Arc::ptr_eq(&properties(), &properties()));
}

/// Versions that do not know who asked skip it, so nothing may depend on it.
#[test]
fn who_asked_is_in_the_record_and_not_in_the_state() {
    let (mut with, mut without) = (State::new(), State::new());
    let by = Arc::new(Actor::new(ActorKind::Key, "4f2a", "ci"));
    let mut named = 0;
    for record in samples::records() {
        let mut event = record.event.clone();
        strategies::set_actor(&mut event, Some(by.clone()));
        let mut bytes = Vec::new();
        encode(record.at, record.prev, &event, &mut bytes);
        let decoded = decode(&bytes).unwrap();
        assert_eq!((decoded.event.by(), &decoded.event), (event.by(), &event));
        named += usize::from(event.by().is_some());
        // The samples are no history, so most do not fit; those that do must do the same.
        let applied = (with.apply(record.at, &event), without.apply(record.at, &record.event));
        assert_eq!(applied.0.is_ok(), applied.1.is_ok(), "{}", event.name());
        assert_eq!(state_digest(&with), state_digest(&without), "{}", event.name());
    }
    assert_eq!(named, 8);
}
