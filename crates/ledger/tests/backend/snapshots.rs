//! Snapshots: stored beside the log, complete or not at all.

use ledger::{Position, SnapshotError, SnapshotInfo};
use test_servers::postgres::execute;

use crate::database_failures::url;
use crate::{Backend, Database, append, for_each_backend, snapshot};

#[test]
fn a_snapshot_is_loaded_block_by_block_after_a_reopen() {
    for_each_backend(|backend| {
        let mut ledger = backend.open().ledger;
        append(&mut *ledger, 4);
        let mut sink = ledger.begin_snapshot(Position(4)).unwrap();
        sink.write_block(b"one").unwrap();
        append(&mut *ledger, 3);
        sink.write_block(&[7; 100_000]).unwrap();
        sink.finish(Position(7)).unwrap();
        drop(ledger);

        let reader = backend.open().ledger.reader();
        let snapshots = reader.snapshots().unwrap();
        let [SnapshotInfo { begin: Position(4), end: Position(7), .. }] = snapshots[..] else {
            panic!("{snapshots:?}");
        };
        let mut source = reader.load_snapshot(&snapshots[0]).unwrap();
        assert_eq!(source.info(), &snapshots[0]);
        let mut block = b"left over".to_vec();
        assert!(source.next_block(&mut block).unwrap());
        assert_eq!(block, b"one");
        assert!(source.next_block(&mut block).unwrap());
        assert_eq!(block, [7; 100_000]);
        assert!(!source.next_block(&mut block).unwrap());
    });
}

#[test]
fn a_snapshot_that_is_dropped_or_refused_leaves_nothing() {
    for_each_backend(|backend| {
        let mut ledger = backend.open().ledger;
        append(&mut *ledger, 4);
        drop(ledger.begin_snapshot(Position(4)).unwrap());
        let ahead = ledger.begin_snapshot(Position(4)).unwrap().finish(Position(5));
        assert!(matches!(ahead, Err(SnapshotError::NotDurable { .. })), "{ahead:?}");
        let backward = ledger.begin_snapshot(Position(4)).unwrap().finish(Position(3));
        assert!(matches!(backward, Err(SnapshotError::BeginsAfterEnd { .. })), "{backward:?}");
        assert!(ledger.reader().snapshots().unwrap().is_empty());
        snapshot(&*ledger);
        assert_eq!(ledger.reader().snapshots().unwrap().len(), 1);
    });
}

/// A failover undid the last blocks while the snapshot was taken, and every later start found it damaged.
#[test]
fn c9_a_snapshot_whose_blocks_a_failover_has_undone_is_none() {
    let database = Database::create();
    let mut ledger = database.open().ledger;
    append(&mut *ledger, 4);
    let mut sink = ledger.begin_snapshot(Position(4)).unwrap();
    sink.write_block(b"one").unwrap();
    sink.write_block(b"two").unwrap();
    execute(&url(&database), "DELETE FROM lessor.snapshot_block WHERE n = 1");
    sink.finish(Position(5)).unwrap_err();
    assert!(ledger.reader().snapshots().unwrap().is_empty());
}

/// An owner that was replaced after a failover stored what it knew beside the other history.
#[test]
fn c9_an_owner_stores_no_snapshot_beside_another_history() {
    let database = Database::create();
    let mut replaced = database.open().ledger;
    append(&mut *replaced, 4);
    let mut sink = replaced.begin_snapshot(Position(4)).unwrap();
    sink.write_block(b"one").unwrap();
    execute(&url(&database), "DELETE FROM lessor.batch WHERE first > 0");
    let mut ledger = database.open().ledger;
    append(&mut *ledger, 2);
    append(&mut *ledger, 2);
    sink.finish(Position(5)).unwrap_err();
    assert!(ledger.reader().snapshots().unwrap().is_empty());
    snapshot(&*ledger);
    assert_eq!(ledger.reader().snapshots().unwrap().len(), 1);
}
