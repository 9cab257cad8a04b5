//! The ledger without faults.

use std::ops::ControlFlow;

use fake_disk::FakeDisk;

use super::{super::*, script::*};
use crate::{BatchFull, MAX_BATCH_BYTES, Position};

#[test]
fn what_was_appended_is_there_after_reopening() {
    let disk = written(5);
    assert!(segments(&disk).len() > 3, "the workload rotates");
    assert_eq!(recover(&disk).expect("reopen"), 15);
    assert_eq!(recover(&disk).expect("reopen again"), 15);
}

#[test]
fn appending_goes_on_after_reopening() {
    let disk = written(3);
    let (mut ledger, report) = open(&disk).expect("reopen");
    assert_eq!((report.created, report.first, report.next), (false, Position(1), Position(7)));
    must_append(&mut ledger, 2);
    drop(ledger);
    assert_eq!(recover(&disk).expect("reopen"), 8);
}

#[test]
fn a_batch_at_another_position_is_fenced() {
    let disk = written(2);
    let (mut ledger, _) = open(&disk).expect("reopen");
    let refused = ledger.append(&batch(Position(3), 1)).expect_err("position 3 is taken");
    let fenced = Refusal::Fenced { expected: Position(4), found: Position(3) };
    assert!(matches!(refused, AppendError::Refused(refusal) if refusal == fenced));
    must_append(&mut ledger, 1);
}

#[test]
fn a_batch_that_fits_into_no_segment_is_refused() {
    let (mut ledger, _) = open(&FakeDisk::new()).expect("a new directory");
    let mut builder = BatchBuilder::new(ledger.next());
    builder.push(&vec![7; SEGMENT_BYTES as usize]).expect("far below the limit of a batch");
    let refused = ledger.append(&builder.finish(0)).expect_err("too large");
    assert!(matches!(refused, AppendError::Refused(Refusal::TooLarge { .. })));
    must_append(&mut ledger, 1);
}

#[test]
fn a_batch_has_a_limit() {
    let mut builder = BatchBuilder::new(Position(1));
    builder.push(&vec![0; MAX_BATCH_BYTES - 4]).expect("exactly the limit");
    assert_eq!(builder.push(b""), Err(BatchFull { record_bytes: 0, body_bytes: MAX_BATCH_BYTES }));
}

#[test]
fn a_batch_shows_its_records() {
    let mut seen = Vec::new();
    let batch = batch(Position(4), 6);
    seen.extend(batch.records().map(|(position, bytes)| (position.0, bytes.to_vec())));
    assert_eq!(seen, (4..10).map(|position| (position, record(position))).collect::<Vec<_>>());
}

#[test]
fn an_empty_batch_changes_nothing_but_vouches_for_the_one_before() {
    let disk = written(2);
    let (mut ledger, _) = open(&disk).expect("reopen");
    for _ in 0..9 {
        must_append(&mut ledger, 0);
    }
    assert_eq!(ledger.next(), Position(4));
    must_append(&mut ledger, 1);
    drop(ledger);
    assert_eq!(recover(&disk).expect("reopen"), 4);
}

#[test]
fn replay_starts_where_it_is_told() {
    let disk = written(5);
    let (ledger, _) = open(&disk).expect("reopen");
    for from in 1..=16 {
        let mut seen = Vec::new();
        let replayed = replay(&ledger, Position(from), |position, bytes| {
            assert_eq!(bytes, record(position.0));
            seen.push(position.0);
        });
        replayed.expect("nothing is damaged");
        assert_eq!(seen, (from..=15).collect::<Vec<_>>());
    }
    assert_eq!(ledger.reader().replayed(), Position(15));
}

#[test]
fn a_visitor_can_end_a_replay() {
    let disk = written(5);
    let (ledger, _) = open(&disk).expect("reopen");
    let mut last = Position(0);
    let ended = ledger.replay(Position(2), &mut |position, _| {
        last = position;
        if position.0 == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    ended.expect("nothing is damaged");
    assert_eq!(last, Position(7));
}

#[test]
fn a_reader_finds_every_record_beside_the_writer() {
    let disk = written(4);
    let (mut ledger, _) = open(&disk).expect("reopen");
    let reader = ledger.reader();
    for round in 0..4 {
        let next = ledger.next().0;
        for position in 1..next {
            assert_eq!(reader.record(Position(position)).expect("sound"), Some(record(position)));
        }
        for from in 1..next {
            let expected: Vec<_> = (from..next).map(|position| (position, record(position))).collect();
            assert_eq!(read(&reader, from, next - 1), expected);
        }
        let beyond = reader.record(Position(next)).expect_err("not appended yet");
        assert_eq!(beyond.kind(), ErrorKind::BeyondEnd);
        must_append(&mut ledger, round);
    }
}

#[test]
fn a_snapshot_and_the_log_after_it_give_the_whole() {
    let disk = written(3);
    let (mut ledger, _) = open(&disk).expect("reopen");
    assert!(load_snapshot(&ledger).expect("nothing is damaged").is_none());
    snapshot(&ledger).expect("stored");
    must_append(&mut ledger, 3);
    assert_eq!(restore(&ledger).expect("sound"), 9);
    drop(ledger);
    assert_eq!(recover(&disk).expect("reopen"), 9);
}

#[test]
fn a_snapshot_ends_at_what_is_durable() {
    let disk = written(2);
    let (ledger, _) = open(&disk).expect("reopen");
    let writer = ledger.begin_snapshot(Position(2)).expect("begun");
    assert!(matches!(ledger.begin_snapshot(Position(2)), Err(SnapshotError::InProgress)));
    assert!(matches!(writer.finish(Position(4)), Err(SnapshotError::NotDurable { .. })));
    let writer = ledger.begin_snapshot(Position(3)).expect("the first one is over");
    assert!(matches!(writer.finish(Position(2)), Err(SnapshotError::BeginsAfterEnd { .. })));
    assert!(!disk.names().iter().any(|name| name.starts_with("snapshot")));
}

#[test]
fn history_is_trimmed_by_age_and_by_size_but_never_what_snapshots_need() {
    let disk = written(5);
    let (mut ledger, _) = open(&disk).expect("reopen");
    assert!(ledger.trim_job(u64::MAX).is_none(), "no snapshot covers anything");
    snapshot(&ledger).expect("stored");
    assert!(ledger.trim_job(u64::MAX).is_none(), "one snapshot may turn out bad");
    must_append(&mut ledger, 3);
    snapshot(&ledger).expect("stored");
    assert!(ledger.trim_job(20_000).is_none(), "history is young and small");
    let before = segments(&disk);
    let reader = ledger.reader();
    let mut job = Some(ledger.trim_job(u64::MAX).expect("history is old"));
    assert!(ledger.trim_job(u64::MAX).is_none(), "one job at a time");
    let mut seen = Vec::new();
    let read = reader.read(Position(1), Position(15), &mut |position, _| {
        if let Some(job) = job.take() {
            assert!(job.run().expect("nothing is wrong") > 0);
            assert!(segments(&disk).len() < before.len());
        }
        seen.push(position.0);
        ControlFlow::Continue(())
    });
    read.expect("a read that began before the trim goes on");
    assert_eq!(seen, (1..=15).collect::<Vec<_>>());
    assert_eq!(reader.record(Position(1)).expect("sound"), None, "trimmed history");
    assert_eq!(restore(&ledger).expect("sound"), 18);
    drop(ledger);
    let (ledger, report) = open(&disk).expect("reopen");
    assert!(report.first > Position(1) && report.first <= Position(16));
    assert_eq!(restore(&ledger).expect("sound"), 18);
    drop(ledger);

    let tight = Options { history_max_bytes: 0, ..options() };
    let (mut ledger, _) = open_with(&disk, tight).expect("reopen");
    for _ in 0..3 {
        must_append(&mut ledger, 4);
        snapshot(&ledger).expect("stored");
    }
    ledger.trim_job(0).expect("there is more than nothing").run().expect("nothing is wrong");
    assert_eq!(snapshots(&ledger).len(), SNAPSHOTS_KEPT);
    assert_eq!(restore(&ledger).expect("sound"), 30);
    drop(ledger);
    assert_eq!(recover(&disk).expect("reopen"), 30);
}

#[test]
fn history_under_a_hold_is_not_trimmed() {
    let disk = written(5);
    let (mut ledger, _) = open(&disk).expect("reopen");
    let reader = ledger.reader();
    let hold = reader.hold("reader", Position(1)).expect("nothing is wrong");
    let first = || reader.first().expect("nothing is wrong");
    for _ in 0..2 {
        must_append(&mut ledger, 3);
        snapshot(&ledger).expect("stored");
    }
    assert!(ledger.trim_job(u64::MAX).is_none(), "everything is still to be read");
    hold.advance(Position(9)).expect("nothing is wrong");
    hold.advance(Position(2)).expect("nothing is wrong");
    ledger.trim_job(u64::MAX).expect("what was read may go").run().expect("nothing is wrong");
    assert!(first() > Position(1) && first() <= Position(9), "{}", first());
    drop(hold);
    ledger.trim_job(u64::MAX).expect("nobody reads any more").run().expect("nothing is wrong");
    assert!(first() > Position(9));
}
