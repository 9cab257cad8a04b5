//! Trim: removes history that neither a snapshot nor a hold needs.

use std::ops::ControlFlow;

use ledger::file::{FileLedger, Options};
use ledger::{BatchBuilder, ClusterId, ErrorKind, Ledger, Position};
use test_servers::postgres::execute;

use crate::database_failures::url;
use crate::{Backend, Database, END, append, for_each_backend, read, snapshot, tend};

/// Appends and takes snapshots until there is history that may be trimmed, and trims.
fn fill_and_tend(ledger: &mut dyn Ledger) {
    for _ in 0..4 {
        append(ledger, 60);
        snapshot(ledger);
        tend(ledger);
    }
}

#[test]
fn a_trim_keeps_two_snapshots_and_every_record_after_the_older_one() {
    for_each_backend(|backend| {
        let mut ledger = backend.open().ledger;
        fill_and_tend(&mut *ledger);
        let reader = ledger.reader();
        let snapshots = reader.snapshots().unwrap();
        assert_eq!(snapshots.len(), 2);
        let first = reader.first().unwrap();
        assert!(first > Position(1) && first <= snapshots[0].begin.next(), "{first}");
        assert_eq!(read(&*reader, first.0), 241);
        assert_eq!(reader.record(Position(1)).unwrap(), None);
        let trimmed = reader.read(Position(1), END, &mut |_, _| panic!("nothing is read"));
        assert_eq!(trimmed.unwrap_err().kind(), ErrorKind::Trimmed);
        drop(ledger);

        let mut again = backend.open().ledger;
        assert_eq!(again.next(), Position(241));
        append(&mut *again, 1);
        assert_eq!(read(&*again.reader(), first.0), 242);
    });
}

#[test]
fn a_position_that_was_trimmed_stays_taken() {
    for_each_backend(|backend| {
        let mut ledger = backend.open().ledger;
        fill_and_tend(&mut *ledger);
        ledger.append(&crate::batch(Position(1), 1)).expect_err("position 1 was taken before it was trimmed");
        assert_eq!(ledger.next(), Position(241));
    });
}

#[test]
fn held_records_are_not_trimmed_until_the_hold_advances_or_ends() {
    for_each_backend(|backend| {
        let mut ledger = backend.open().ledger;
        append(&mut *ledger, 60);
        let reader = ledger.reader();
        let (slow, slower) = (reader.hold("slow", Position(41)), reader.hold("slower", Position(1)));
        let (slow, slower) = (slow.unwrap(), slower.unwrap());
        fill_and_tend(&mut *ledger);
        assert_eq!(reader.first().unwrap(), Position(1));
        drop(slower);
        fill_and_tend(&mut *ledger);
        assert!(reader.first().unwrap() <= Position(41));
        slow.advance(Position(200)).unwrap();
        fill_and_tend(&mut *ledger);
        let first = reader.first().unwrap();
        assert!(first > Position(41) && first <= Position(200), "{first}");
    });
}

#[test]
fn a_directory_may_begin_late_where_a_snapshot_stands_for_its_past() {
    let dir = tempfile::tempdir().unwrap();
    let create = || Options { create: Some(ClusterId([5; 16])), first: Position(50), ..Options::default() };
    for has_snapshot in [false, true] {
        let path = dir.path().join(has_snapshot.to_string());
        let (mut ledger, _) = FileLedger::open_dir(&path, create()).unwrap();
        append(&mut ledger, 12);
        if has_snapshot {
            snapshot(&ledger);
        }
        drop(ledger);
        let opened = FileLedger::open_dir(&path, Options::default());
        assert_eq!(opened.is_ok(), has_snapshot);
        if let Ok((ledger, _)) = opened {
            assert_eq!(read(&*Ledger::reader(&ledger), 50), 62);
        }
    }
}

#[test]
fn a_reader_that_a_trim_overtakes_is_told_so_and_not_of_damage() {
    let database = Database::create();
    let mut ledger = database.open().ledger;
    // Two of them fill a page, so that these are three pages.
    let large = |position: u64| -> Vec<u8> {
        let mut state = position + 1;
        let noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        std::iter::repeat_with(noise).take(3 << 20).collect()
    };
    for position in 1..=6 {
        let mut batch = BatchBuilder::new(Position(position));
        batch.push(&large(position)).unwrap();
        ledger.append(&batch.finish(1)).unwrap();
    }
    let mut is_first = true;
    let overtaken = ledger.replay(Position(1), &mut |_, _| {
        if std::mem::take(&mut is_first) {
            execute(&url(&database), "DELETE FROM lessor.batch WHERE first < 6");
        }
        ControlFlow::Continue(())
    });
    assert_eq!(overtaken.unwrap_err().kind(), ErrorKind::Trimmed);
}

#[test]
fn a_snapshot_that_is_removed_while_it_is_loaded_is_trimmed_and_not_damaged() {
    let database = Database::create();
    let mut ledger = database.open().ledger;
    append(&mut *ledger, 10);
    snapshot(&*ledger);
    let reader = ledger.reader();
    let newest = reader.snapshots().unwrap().pop().unwrap();
    let mut source = reader.load_snapshot(&newest).unwrap();
    let mut block = Vec::new();
    assert!(source.next_block(&mut block).unwrap());
    let remove = |table: &str| execute(&url(&database), &format!("DELETE FROM lessor.{table}"));
    remove("snapshot_block");
    assert_eq!(
        source.next_block(&mut block).unwrap_err().kind(),
        ErrorKind::Damaged,
        "its row says that it is whole"
    );
    remove("snapshot");
    assert_eq!(source.next_block(&mut block).unwrap_err().kind(), ErrorKind::Trimmed);
    assert_eq!(reader.load_snapshot(&newest).err().unwrap().kind(), ErrorKind::Trimmed);
}
