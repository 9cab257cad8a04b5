//! Snapshots: stored beside the log, complete or not at all.

use ledger::{Position, SnapshotError, SnapshotInfo};

use crate::{append, for_each_backend, snapshot};

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
