//! Recoveries that are long enough for two threads: the same state, and the same errors.

use std::sync::Arc;

use authority::{Event, Properties, QueueKey, Scope, TaskId, Time, event};
use ledger::digest::state_digest;
use ledger::memory::MemoryStorage;
use ledger::record::snapshot::Slices;
use ledger::{BatchBuilder, Position, Recovery, RecoveryError, record};

/// More than one thread applies alone.
const TASKS: u64 = 40_000;

/// A task of one of several queues. A task comes again for every position after `repeat_from`.
fn task_created(position: u64, repeat_from: u64) -> Vec<u8> {
    let scope = Scope { tenant: Arc::from("default"), workspace: Arc::from("default") };
    let name = Arc::from(format!("q{}", position % 100));
    let event = event::TaskCreated {
        task: TaskId(u128::from(position.min(repeat_from))),
        queue: Arc::new(QueueKey { scope, name }),
        payload: Arc::from(position.to_string().into_bytes()),
        priority: 0,
        not_before: None,
        properties: Arc::new(Properties::default()),
        options: None,
        operation: None,
        by: None,
    };
    let mut bytes = Vec::new();
    record::encode(Time(position), None, &Event::TaskCreated(Box::new(event)), &mut bytes);
    bytes
}

/// A ledger with a record for each position.
fn written(record: impl Fn(u64) -> Vec<u8>) -> MemoryStorage {
    let storage = MemoryStorage::default();
    let mut batch = BatchBuilder::new(Position(1));
    for position in 1..=TASKS {
        batch.push(&record(position)).unwrap();
    }
    storage.open().ledger.append(&batch.finish(TASKS)).unwrap();
    storage
}

#[test]
fn a_long_recovery_gives_the_state_of_its_records_with_and_without_a_snapshot() {
    let mut one_by_one = Recovery::new();
    for position in 1..=TASKS {
        one_by_one.apply(Position(position), &task_created(position, u64::MAX)).unwrap();
    }
    let expected = state_digest(one_by_one.state());
    let storage = written(|position| task_created(position, u64::MAX));
    let ledger = storage.open().ledger;
    let replayed = Recovery::newest(&*ledger).unwrap();
    assert_eq!((replayed.records(), replayed.bytes()), (TASKS, one_by_one.bytes()));
    assert_eq!(state_digest(replayed.state()), expected);

    let (state, mut block) = (replayed.state(), Vec::new());
    let mut slices = Slices::begin(state, &mut block);
    let mut sink = ledger.begin_snapshot(state.position()).unwrap();
    sink.write_block(&block).unwrap();
    while !slices.is_done() {
        block.clear();
        slices.next(state, 5_000, 1 << 20, &mut block);
        sink.write_block(&block).unwrap();
    }
    sink.finish(state.position()).unwrap();
    let restored = Recovery::newest(&*ledger).unwrap();
    assert_eq!((restored.records(), restored.blocks() > 1), (0, true));
    assert_eq!(state_digest(restored.state()), expected);
}

#[test]
fn a_long_recovery_names_the_record_that_does_not_fit_or_cannot_be_read() {
    const BAD: u64 = TASKS - 5_000;
    let twice = written(|position| task_created(position, BAD));
    match Recovery::newest(&*twice.open().ledger).unwrap_err() {
        RecoveryError::InvalidTransition(error) => assert_eq!(error.position, Position(BAD + 1)),
        other => panic!("{other}"),
    }
    let garbage = written(|position| match position {
        BAD => b"garbage".to_vec(),
        _ => task_created(position, u64::MAX),
    });
    match Recovery::newest(&*garbage.open().ledger).unwrap_err() {
        RecoveryError::Record(position, _) => assert_eq!(position, Position(BAD)),
        other => panic!("{other}"),
    }
}
