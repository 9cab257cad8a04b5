//! A small ledger of tasks on a fake disk: asked about its past, and damaged in ways that only the meaning of its
//! records shows.

use std::sync::Arc;

use authority::event::{LeaseGranted, TaskCompleted, TaskCreated};
use authority::{
    Digest, Event, Position, Properties, QueueDefaults, QueueKey, Scope, State, TaskId, TaskState, Time,
};

use disk::Disk;
use fake_disk::FakeDisk;
use history::time_travel::{self, TimeTravelError, first_at_or_after, last};
use history::verify::{VerifyReport, verify};
use ledger::digest::state_digest;
use ledger::file::{FileLedger, Inspection, Options};
use ledger::record::{self, snapshot::Slices};
use ledger::{BatchBuilder, ClusterId, Ledger, Reader};

/// A ledger with one batch to a record, and the state that it leads to.
struct Book {
    disk: FakeDisk,
    ledger: FileLedger,
    state: State,
}

impl Book {
    fn new() -> Book {
        let disk = FakeDisk::new();
        let create = Some(ClusterId(*b"a test's cluster"));
        let options = Options { segment_bytes: 16 << 10, create, ..Options::default() };
        let (ledger, _) = FileLedger::open(Arc::new(disk.clone()), options).unwrap();
        Book { disk, ledger, state: State::new() }
    }

    /// Appends an event at its position times 1,000 ms, and applies it.
    fn write(&mut self, event: Event) {
        let at = Time(self.state.position().next().0 * 1_000);
        self.append(at, &event);
        self.state.apply(at, &event).unwrap();
    }

    fn append(&mut self, at: Time, event: &Event) {
        let mut bytes = Vec::new();
        record::encode(at, None, event, &mut bytes);
        let mut builder = BatchBuilder::new(self.ledger.next());
        builder.push(&bytes).unwrap();
        self.ledger.append(&builder.finish(at.0)).unwrap();
    }

    /// Takes a task from its creation to its completion, in three records.
    fn live(&mut self, id: u128) {
        self.write(created(id));
        let lease = self.state.position().next();
        let expires_at = Time(lease.0 * 1_000 + 60_000);
        self.write(Event::LeaseGranted(LeaseGranted {
            task: TaskId(id),
            attempt: 1,
            worker: Arc::from("w"),
            session: None,
            request: None,
            length_ms: 60_000,
            expires_at,
            contract: Some(authority::Contract::Leases),
        }));
        let (task, digest, result) = (TaskId(id), Digest([7; 16]), Arc::from(*b"1"));
        self.write(Event::TaskCompleted(TaskCompleted {
            task,
            fencing_token: lease,
            digest,
            result,
            details: None,
        }));
    }

    /// Stores a snapshot of the state, in slices between which `more` happens.
    fn snapshot(&mut self, more: impl Fn(&mut Book)) {
        let mut block = Vec::new();
        let mut slices = Slices::begin(&self.state, &mut block);
        let mut writer = self.ledger.begin_snapshot(self.state.position()).unwrap();
        writer.write_block(&block).unwrap();
        while !slices.is_done() {
            more(self);
            block.clear();
            slices.next(&self.state, 2, usize::MAX, &mut block);
            writer.write_block(&block).unwrap();
        }
        writer.finish(self.state.position()).unwrap();
    }

    fn inspect(&self) -> Inspection {
        Inspection::open(Arc::new(self.disk.clone()) as Arc<dyn Disk>).unwrap()
    }

    fn verify(&self) -> VerifyReport {
        verify(&self.inspect(), &mut |_| {}).unwrap()
    }
}

fn state_at(inspection: &Inspection, position: Position) -> Result<State, TimeTravelError> {
    time_travel::state_at(inspection, position, QueueDefaults::default())
}

fn created(id: u128) -> Event {
    let scope = Scope { tenant: Arc::from("t"), workspace: Arc::from("w") };
    Event::TaskCreated(Box::new(TaskCreated {
        task: TaskId(id),
        queue: Arc::new(QueueKey { scope, name: Arc::from("q") }),
        payload: Arc::from(vec![b'1'; 300]),
        priority: 0,
        not_before: None,
        properties: Arc::new(Properties::default()),
        options: None,
        operation: None,
        by: None,
    }))
}

fn book(tasks: u128) -> Book {
    let mut book = Book::new();
    (1..=tasks).for_each(|id| book.live(id));
    book
}

#[test]
fn a_sound_ledger_is_verified_from_its_first_record_to_its_last() {
    let book = book(20);
    let report = book.verify();
    assert_eq!(report.damages, []);
    assert_eq!((report.records, report.parts[1], report.tasks), (60, ("frames", 60), 20));
    assert!(report.parts[0].1 > 1 && report.is_whole);
    assert_eq!(report.first, Some((Position(1), Time(1_000))));
    assert_eq!(report.last, Some((Position(60), Time(60_000))));
    assert_eq!(report.digest, Some(state_digest(&book.state)));
}

#[test]
fn a_snapshot_taken_under_load_is_proven_against_the_replay() {
    let mut book = book(5);
    book.snapshot(|book| book.live(book.state.len() as u128 + 1));
    book.live(100);
    let report = book.verify();
    assert_eq!(report.damages, []);
    assert!(report.snapshots[0].is_proven && report.snapshots[0].blocks > 2);
}

#[test]
fn a_snapshot_of_another_history_is_found_by_its_digest() {
    // As many records, and every checksum right: only the state differs.
    let mut other = book(4);
    other.live(99);
    let mut book = book(5);
    std::mem::swap(&mut book.state, &mut other.state);
    book.snapshot(|_| {});
    let report = book.verify();
    assert_eq!(report.damages.len(), 1, "{:?}", report.damages);
    assert!(report.damages[0].file.starts_with("snapshot-") && report.damages[0].what.contains("replay"));
    assert!(!report.snapshots[0].is_proven);
}

#[test]
fn a_record_that_does_not_fit_is_named_with_its_place() {
    let mut book = book(2);
    book.append(Time(7_000), &created(1));
    book.append(Time(8_000), &created(9));
    let report = book.verify();
    assert_eq!(report.damages.len(), 1, "{:?}", report.damages);
    let damage = &report.damages[0];
    assert_eq!((damage.from, damage.to), (Position(7), Some(Position(7))));
    assert!(damage.what.contains("exists already") && damage.file.starts_with("segment-"));
    assert_eq!((report.records, report.digest), (8, None), "the rest was read, but not applied");
}

#[test]
fn behind_damage_the_next_snapshot_goes_on() {
    let mut book = book(4);
    book.snapshot(|_| {});
    book.live(5);
    let name = book.disk.names().into_iter().find(|name| name.starts_with("segment-")).unwrap();
    let mut bytes = book.disk.content(&name).unwrap();
    bytes[512 + 200] ^= 1;
    book.disk.put(&name, bytes);
    let report = book.verify();
    assert_eq!(report.damages.len(), 1, "{:?}", report.damages);
    assert_eq!((report.damages[0].offset, report.damages[0].from), (512, Position(1)));
    assert_eq!(report.replayed_from, Some(Position(12)));
    assert_eq!(report.digest, Some(state_digest(&book.state)));
}

#[test]
fn a_trimmed_log_is_verified_from_its_oldest_snapshot() {
    let mut book = book(20);
    book.snapshot(|_| {});
    (21..=40).for_each(|id| book.live(id));
    book.snapshot(|_| {});
    (41..=60).for_each(|id| book.live(id));
    book.ledger.trim_job(u64::MAX).expect("history is old").run().unwrap();
    let report = book.verify();
    assert_eq!(report.damages, []);
    assert!(!report.is_whole && report.first.unwrap().0 > Position(1));
    assert_eq!(report.replayed_from, Some(Position(60)));
    assert_eq!(report.snapshots.iter().map(|snapshot| snapshot.is_proven).collect::<Vec<_>>(), [false, true]);
    assert_eq!(report.digest, Some(state_digest(&book.state)));
    let inspection = book.inspect();
    assert!(matches!(state_at(&inspection, Position(5)), Err(TimeTravelError::Trimmed { .. })));
    assert_eq!(state_at(&inspection, Position(90)).unwrap().len(), 30);

    let snapshots = inspection.snapshots().unwrap();
    snapshots.iter().for_each(|info| book.disk.lose(&info.name));
    let report = book.verify();
    assert_eq!(report.damages.len(), 1, "{:?}", report.damages);
    assert!(report.damages[0].what.contains("no usable snapshot"));
}

#[test]
fn a_snapshot_that_outlives_the_end_of_the_log_is_found() {
    let mut book = book(20);
    book.snapshot(|_| {});
    let last = book.disk.names().into_iter().rfind(|name| name.starts_with("segment-")).unwrap();
    let mut bytes = book.disk.content(&last).unwrap();
    bytes[512..].fill(0);
    book.disk.put(&last, bytes);
    let report = book.verify();
    assert_eq!(report.damages.len(), 1, "{:?}", report.damages);
    assert!(report.damages[0].what.contains("newer than the log"));
    assert_eq!(report.damages[0].to, Some(Position(60)));
}

#[test]
fn the_state_is_told_at_any_position_with_and_without_a_snapshot() {
    let mut book = book(6);
    book.snapshot(|_| {});
    book.live(7);
    let inspection = book.inspect();
    let state_of = |state: &State, id| state.task(TaskId(id)).map(|task| task.state());
    assert!(state_at(&inspection, Position(0)).unwrap().is_empty());
    assert_eq!(state_of(&state_at(&inspection, Position(2)).unwrap(), 1), Some(TaskState::Leased));
    assert_eq!(state_of(&state_at(&inspection, Position(20)).unwrap(), 7), Some(TaskState::Leased));
    assert_eq!(state_digest(&state_at(&inspection, Position(21)).unwrap()), state_digest(&book.state));
    assert!(matches!(
        state_at(&inspection, Position(22)),
        Err(TimeTravelError::Beyond { last: Position(21), .. })
    ));
    assert_eq!(last(&inspection).unwrap(), Position(21));
}

#[test]
fn a_time_leads_to_the_first_record_made_then_or_later() {
    let book = book(20);
    let inspection = book.inspect();
    for (ms, position) in [(0, 1), (1_000, 1), (1_001, 2), (30_000, 30), (60_000, 60), (60_001, 61)] {
        assert_eq!(first_at_or_after(&inspection, Time(ms)).unwrap(), Position(position), "{ms}");
    }
}
