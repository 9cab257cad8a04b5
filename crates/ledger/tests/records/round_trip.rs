//! Round trips: every encoded record and entry decodes to itself.

use std::sync::Arc;

use authority::{Owner, Position, StoredKey, Time, TokenKey};
use ledger::record::snapshot::{self, BlockDecoder, SnapshotEntry};
use ledger::record::{decode, encode};
use proptest::prelude::*;

use crate::strategies;

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
