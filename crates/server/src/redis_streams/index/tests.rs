//! The entries and changes that follow from records.

use authority::event::{
    ExpiryCause, LeaseExpired, LeaseGranted, LeaseReleased, ReleaseCause, TaskCompleted, TaskCreated,
};
use authority::{Digest, Properties, Scope};

use super::*;

struct Script {
    index: Index,
    position: u64,
}

impl Script {
    /// An index whose one queue is known to be empty.
    fn new() -> Script {
        let mut script = Script { index: Index::default(), position: 0 };
        script.create(99, None);
        script.complete(99);
        assert_eq!(script.index.take_work(9), [(0, Work::Reconcile)]);
        assert_eq!(script.index.snapshot(0), []);
        script
    }

    fn record(&mut self, event: Event) -> u64 {
        self.position += 1;
        let position = Position(self.position);
        self.index.apply(&HistoryRecord { position, at: Time(1_000), event });
        self.position
    }

    fn create(&mut self, task: u128, not_before: Option<Time>) -> u64 {
        let scope = Scope { tenant: "t".into(), workspace: "w".into() };
        self.record(Event::TaskCreated(Box::new(TaskCreated {
            task: TaskId(task),
            queue: Arc::new(QueueKey { scope, name: "q".into() }),
            payload: Arc::from(&b"1"[..]),
            priority: 0,
            not_before,
            properties: Arc::new(Properties::default()),
            options: None,
            operation: None,
            by: None,
        })))
    }

    fn grant(&mut self, task: u128) -> u64 {
        self.record(Event::LeaseGranted(LeaseGranted {
            task: TaskId(task),
            attempt: 1,
            worker: "w1".into(),
            session: None,
            request: None,
            length_ms: 1,
            expires_at: Time(1),
            contract: None,
        }))
    }

    fn release(&mut self, task: u128) -> u64 {
        self.record(Event::LeaseReleased(LeaseReleased {
            task: TaskId(task),
            fencing_token: Position(1),
            cause: ReleaseCause::Worker,
        }))
    }

    fn expire(&mut self, task: u128, exhausted: bool) -> u64 {
        let (cause, since) = (ExpiryCause::Silence, None);
        let fencing_token = Position(1);
        self.record(Event::LeaseExpired(LeaseExpired {
            task: TaskId(task),
            fencing_token,
            cause,
            exhausted,
            since,
        }))
    }

    fn complete(&mut self, task: u128) {
        self.record(Event::TaskCompleted(TaskCompleted {
            task: TaskId(task),
            fencing_token: Position(1),
            digest: Digest([0; 16]),
            result: Arc::from(&b"1"[..]),
            details: None,
        }));
    }

    /// Removed and added positions.
    fn changes(&mut self) -> (Vec<u64>, Vec<u64>) {
        match self.index.take_work(1).pop() {
            Some((0, Work::Send(changes))) => {
                (changes.removes, changes.adds.into_iter().map(|add| add.position).collect())
            }
            None => (Vec::new(), Vec::new()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_entry_stays_until_the_attempt_ends_and_a_task_that_waits_again_has_another() {
    let mut script = Script::new();
    let created = script.create(1, None);
    assert_eq!(script.changes(), (vec![], vec![created]));
    script.grant(1);
    assert_eq!(script.changes(), (vec![], vec![]));
    let released = script.release(1);
    assert_eq!(script.changes(), (vec![created], vec![released]));
    script.grant(1);
    let expired = script.expire(1, false);
    assert_eq!(script.changes(), (vec![released], vec![expired]));
    script.grant(1);
    script.expire(1, true);
    assert_eq!(script.changes(), (vec![expired], vec![]));
}

#[test]
fn a_task_that_ends_before_it_was_sent_is_not_sent() {
    let mut script = Script::new();
    script.create(1, None);
    script.grant(1);
    script.complete(1);
    assert_eq!(script.changes(), (vec![], vec![]));
    assert_eq!(script.index.pending(), 0);
}

#[test]
fn changes_that_were_not_applied_are_sent_again_without_what_ended_meanwhile() {
    let mut script = Script::new();
    let (first, second) = (script.create(1, None), script.create(2, None));
    let mut work = script.index.take_work(1);
    let Some((0, Work::Send(changes))) = work.pop() else { panic!("changes") };
    script.complete(1);
    script.index.put_back(0, changes);
    assert_eq!(script.changes(), (vec![], vec![second]));
    assert_ne!(first, second);
}

#[test]
fn many_changes_are_sent_in_parts_oldest_first() {
    let mut script = Script::new();
    let created: Vec<u64> = (0..2 * MAX_CHANGES as u128).map(|task| script.create(task, None)).collect();
    let sent = [script.changes().1, script.changes().1].concat();
    assert_eq!(sent, created);
    assert_eq!(script.changes(), (vec![], vec![]));
}

#[test]
fn after_a_loss_all_open_tasks_are_there() {
    let mut script = Script::new();
    let created: Vec<u64> = (0..4).map(|task| script.create(task, None)).collect();
    script.changes();
    script.index.forget(0);
    script.complete(2);
    assert_eq!(script.index.take_work(1), [(0, Work::Reconcile)]);
    let wanted: Vec<u64> = script.index.snapshot(0).iter().map(|envelope| envelope.position).collect();
    assert_eq!(wanted, [created[0], created[1], created[3]]);
    assert_eq!(script.changes(), (vec![], vec![]), "changes are collected from the snapshot on");
}

#[test]
fn a_delayed_task_is_due_once() {
    let mut script = Script::new();
    let delayed = script.create(1, Some(Time(5_000)));
    script.create(2, Some(Time(6_000)));
    script.create(3, Some(Time(500)));
    assert_eq!(script.index.next_due(), Some(Time(5_000)));
    script.complete(2);
    assert_eq!(script.index.take_due(Time(4_999), 9), []);
    let due = script.index.take_due(Time(9_000), 9);
    assert_eq!(due, [(Arc::from("lessor:{t/w/q}"), delayed)]);
    assert_eq!(script.index.next_due(), None);
}
