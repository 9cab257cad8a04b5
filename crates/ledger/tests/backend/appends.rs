//! Appends: positions, fencing, and durability over a reopen.

use ledger::{AppendError, ErrorKind, Position, Refusal};

use crate::{append, batch, for_each_backend, read, record};

#[test]
fn a_new_ledger_is_empty_and_starts_at_position_one() {
    for_each_backend(|backend| {
        let ledger = backend.open().ledger;
        let reader = ledger.reader();
        assert_eq!(ledger.next(), Position(1));
        assert_eq!((reader.first().unwrap(), reader.next().unwrap()), (Position(1), Position(1)));
        assert_eq!(read(&*reader, 1), 1);
        assert!(reader.snapshots().unwrap().is_empty());
    });
}

#[test]
fn records_get_consecutive_positions_and_are_read_back_as_they_were_written() {
    for_each_backend(|backend| {
        let mut ledger = backend.open().ledger;
        for count in [1, 3, 40, 2] {
            append(&mut *ledger, count);
        }
        assert_eq!(ledger.next(), Position(47));
        let reader = ledger.reader();
        assert_eq!(read(&*reader, 1), 47);
        assert_eq!(reader.record(Position(20)).unwrap(), Some(record(20)));
        let beyond = reader.record(Position(47)).unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::BeyondEnd);
    });
}

#[test]
fn appended_records_outlive_the_ledger() {
    for_each_backend(|backend| {
        let mut ledger = backend.open().ledger;
        append(&mut *ledger, 30);
        drop(ledger);
        let mut again = backend.open().ledger;
        assert_eq!(again.next(), Position(31));
        append(&mut *again, 30);
        assert_eq!(read(&*again.reader(), 1), 61);
    });
}

#[test]
fn a_batch_for_any_other_position_is_fenced_and_changes_nothing() {
    for_each_backend(|backend| {
        let mut ledger = backend.open().ledger;
        append(&mut *ledger, 5);
        for first in [1, 5, 7] {
            let refused = ledger.append(&batch(Position(first), 2));
            let expected = Refusal::Fenced { expected: Position(6), found: Position(first) };
            assert!(matches!(refused, Err(AppendError::Refused(refusal)) if refusal == expected));
        }
        append(&mut *ledger, 1);
        assert_eq!(read(&*ledger.reader(), 1), 7);
    });
}

#[test]
fn an_empty_batch_adds_no_record() {
    for_each_backend(|backend| {
        let mut ledger = backend.open().ledger;
        append(&mut *ledger, 2);
        append(&mut *ledger, 0);
        append(&mut *ledger, 1);
        assert_eq!(read(&*ledger.reader(), 1), 4);
    });
}

#[test]
fn a_replay_shows_the_same_records_as_a_reader() {
    for_each_backend(|backend| {
        let mut ledger = backend.open().ledger;
        append(&mut *ledger, 50);
        let mut replayed = Vec::new();
        let mut visit = |position: Position, bytes: &[u8]| {
            replayed.push((position, bytes.to_vec()));
            std::ops::ControlFlow::Continue(())
        };
        ledger.replay(Position(11), &mut visit).unwrap();
        let expected: Vec<_> = (11..=50).map(|position| (Position(position), record(position))).collect();
        assert_eq!(replayed, expected);
    });
}
