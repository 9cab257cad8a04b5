//! A projection's offset: after a power cut it is an older one or the newest, never a wrong one, and nothing that it still
//! needs is trimmed.

mod support;

use std::sync::{Arc, Mutex};

use coordinator::{HistoryReader, HistoryRecord, Projection, ProjectionRunner};
use fake_disk::{FakeDisk, Fate};
use ledger::file::{FileLedger, OffsetFiles, Options};
use ledger::{BatchBuilder, ClusterId, Ledger, Position, Reader, record};

const LAST: u64 = 12;

struct Notes(Arc<Mutex<Vec<u64>>>);

impl Projection for Notes {
    fn name(&self) -> &str {
        "notes"
    }

    fn apply(&mut self, record: &HistoryRecord, _: &dyn HistoryReader) -> Result<(), String> {
        self.0.lock().unwrap().push(record.position.0);
        Ok(())
    }
}

fn ledger(disk: &FakeDisk) -> FileLedger {
    let options = Options {
        segment_bytes: 24 << 10,
        create: Some(ClusterId([1; 16])),
        history_max_bytes: 0,
        ..Options::default()
    };
    FileLedger::open(Arc::new(disk.clone()), options).unwrap().0
}

/// A ledger of a few records, one to a batch.
fn written(disk: &FakeDisk) -> FileLedger {
    let mut ledger = ledger(disk);
    for position in 1..=LAST {
        append(&mut ledger, position, 10);
    }
    ledger
}

fn append(ledger: &mut FileLedger, position: u64, name_bytes: usize) {
    let key_id = Arc::from("k".repeat(name_bytes));
    let event = authority::Event::TokenKeyRotated(authority::event::TokenKeyRotated { key_id, by: None });
    let (mut bytes, mut batch) = (Vec::new(), BatchBuilder::new(Position(position)));
    record::encode(authority::Time(position), None, &event, &mut bytes);
    batch.push(&bytes).unwrap();
    ledger.append(&batch.finish(position)).unwrap();
}

fn follow(offsets_disk: &FakeDisk, ledger: &FileLedger) -> (ProjectionRunner, Arc<Mutex<Vec<u64>>>) {
    let shown = Arc::new(Mutex::new(Vec::new()));
    let projection = Box::new(Notes(shown.clone()));
    let offsets = Arc::new(OffsetFiles::new(Arc::new(offsets_disk.clone())));
    (ProjectionRunner::open(projection, offsets, 1, Arc::new(ledger.reader())).unwrap(), shown)
}

#[test]
fn a_power_cut_at_any_call_leaves_the_old_offset_or_the_new_one() {
    let ledger = written(&FakeDisk::new());
    for call in 0.. {
        let offsets_disk = FakeDisk::new();
        let (mut runner, _) = follow(&offsets_disk, &ledger);
        runner.catch_up(Position(5)).unwrap();
        runner.save().unwrap();
        runner.catch_up(Position(9)).unwrap();
        offsets_disk.heal();
        offsets_disk.halt_after(call);
        let saved = runner.save();
        let calls = offsets_disk.calls();
        offsets_disk.heal();
        for fate in [Fate::Kept, Fate::Lost, Fate::Torn(1), Fate::Torn(2), Fate::Garbage] {
            let after = offsets_disk.crash(&vec![fate; offsets_disk.unsynced().len()]);
            let (mut again, shown) = follow(&after, &ledger);
            let place = again.applied_up_to().0;
            assert!(place == 9 || (place == 5 && saved.is_err()), "call {call}, {fate:?}: {place}");
            again.catch_up(Position(LAST)).unwrap();
            assert_eq!(*shown.lock().unwrap(), (place + 1..=LAST).collect::<Vec<_>>());
        }
        if calls <= call {
            break;
        }
    }
}

/// Writes over several segments and trims what may go. Gives the next position.
fn fill_and_trim(ledger: &mut FileLedger) -> u64 {
    let mut next = LAST + 1;
    for _ in 0..4 {
        // Each fills most of a segment.
        for _ in 0..2 {
            append(ledger, next, 8 << 10);
            next += 1;
        }
        let writer = ledger.begin_snapshot(Position(next - 1)).unwrap();
        writer.finish(Position(next - 1)).unwrap();
        ledger.trim_job(u64::MAX).map(|job| job.run().unwrap());
    }
    next
}

#[test]
fn a_projection_that_is_new_on_a_trimmed_ledger_begins_with_the_oldest_record() {
    let mut ledger = written(&FakeDisk::new());
    let next = fill_and_trim(&mut ledger);
    let oldest = ledger.reader().first().unwrap().0;
    assert!(oldest > 1, "something was trimmed");
    let (mut runner, shown) = follow(&FakeDisk::new(), &ledger);
    runner.catch_up(Position(next - 1)).unwrap();
    assert_eq!(*shown.lock().unwrap(), (oldest..next).collect::<Vec<_>>());
}

#[test]
fn what_a_projection_has_not_seen_is_not_trimmed() {
    let (disk, offsets_disk) = (FakeDisk::new(), FakeDisk::new());
    let mut ledger = written(&disk);
    let (mut runner, _) = follow(&offsets_disk, &ledger);
    let next = fill_and_trim(&mut ledger);
    assert_eq!(ledger.reader().first().unwrap(), Position(1), "nothing was seen yet");
    runner.catch_up(Position(next - 1)).unwrap();
    assert!(
        ledger.trim_job(u64::MAX).is_none(),
        "what was seen may be needed again until the place is saved"
    );
    runner.save().unwrap();
    ledger.trim_job(u64::MAX).unwrap().run().unwrap();
    assert!(ledger.reader().first().unwrap() > Position(1));
}

/// The projection waited for the position that it had reached in the lost part of the ledger, and never got the records
/// that took its place.
#[test]
fn a_projection_that_is_ahead_of_a_restored_ledger_is_rebuilt() {
    let offsets_disk = FakeDisk::new();
    let ledger_disk = FakeDisk::new();
    let backup = {
        let mut ledger = ledger(&ledger_disk);
        for position in 1..=4 {
            append(&mut ledger, position, 10);
        }
        drop(ledger);
        ledger_disk.crash(&[])
    };
    let mut lost = ledger(&ledger_disk);
    for position in 5..=LAST {
        append(&mut lost, position, 10);
    }
    let (mut runner, _) = follow(&offsets_disk, &lost);
    runner.catch_up(Position(LAST)).unwrap();
    runner.save().unwrap();

    let mut restored = ledger(&backup);
    let (runner, _) = follow(&offsets_disk, &restored);
    assert_eq!(runner.applied_up_to(), Position(0));
    drop(runner);
    // Also if this process ends before it has applied anything, and the ledger grows past the lost offset.
    for position in 5..=LAST + 3 {
        append(&mut restored, position, 10);
    }
    let (mut runner, seen) = follow(&offsets_disk, &restored);
    runner.catch_up(Position(LAST + 3)).unwrap();
    assert_eq!(*seen.lock().unwrap(), (1..=LAST + 3).collect::<Vec<_>>());
}
