//! Reading many records gives what reading each alone gives, whatever the bytes are.

use std::sync::Arc;

use authority::event::TaskCreated;
use authority::{Event, Properties, QueueKey, Scope, TaskId, Time};
use ledger::record::{Reader, Record, decode};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::{samples, strategies};

fn plain_task(at: u64, id: (u64, u64), queue: &str, payload: &[u8]) -> Vec<u8> {
    let scope = Scope { tenant: "t".into(), workspace: "w".into() };
    let event = TaskCreated {
        task: TaskId(u128::from(id.0) << 64 | u128::from(id.1)),
        queue: Arc::new(QueueKey { scope, name: queue.into() }),
        payload: payload.into(),
        priority: 0,
        not_before: None,
        properties: Arc::new(Properties::default()),
        options: None,
        operation: None,
        by: None,
    };
    let mut bytes = Vec::new();
    Record { at: Time(at), prev: None, event: Event::TaskCreated(Box::new(event)) }.encode(&mut bytes);
    bytes
}

/// Reads the bytes after a plain task, whose queue is then known.
fn both_agree(bytes: &[u8]) -> bool {
    let mut reader = Reader::default();
    let known = plain_task(1, (2, 3), "q", b"x");
    assert_eq!(reader.decode(&known), decode(&known));
    reader.decode(bytes) == decode(bytes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_record_reads_the_same(record in strategies::record()) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        prop_assert!(both_agree(&bytes));
    }

    #[test]
    fn plain_tasks_read_the_same_with_every_empty_part(
        at in 0..3_u64, high in 0..2_u64, low in 0..2_u64, queue in "q{0,2}", payload in vec(any::<u8>(), 0..300),
    ) {
        prop_assert!(both_agree(&plain_task(at << 40, (high, low), &queue, &payload)));
    }

    #[test]
    fn a_changed_plain_task_reads_the_same(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        more in vec(any::<u8>(), 0..3),
    ) {
        let mut bytes = plain_task(1 << 40, (5, 6), "q", b"{\"some\":1}");
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        prop_assert!(both_agree(&bytes));
        prop_assert!(both_agree(&bytes[..cut.index(bytes.len())]));
        bytes.extend(more);
        prop_assert!(both_agree(&bytes));
    }
}

#[test]
fn every_flipped_bit_reads_the_same() {
    let plain = plain_task(1 << 40, (5, 6), "q", b"{\"some\":1}");
    let mut records = vec![plain];
    for record in samples::records() {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        records.push(bytes);
    }
    for bytes in records {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(both_agree(&flipped), "bit {bit}");
        }
    }
}
