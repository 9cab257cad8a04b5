//! Finds out how a purged task ended, from the records that the ledger still has.
//!
//! A task's id says when the task was created, so one scan finds the record of its creation and goes on to its end and its
//! purge. Scans are bounded, run off the writer's thread, and reveal nothing about the tasks of another scope.

use std::ops::ControlFlow;
use std::sync::Arc;

use authority::event::NextStep;
use authority::{Event, Position, Scope, TaskId, TaskState, Time};
use ledger::record::{self, DecodeError, TaskFinder};
use ledger::{ErrorKind, Reader};
use tokio::sync::Semaphore;

use crate::history::HistoryError;
use crate::request::Unavailable;

/// Most bytes and records that one scan reads.
const MAX_SCAN_BYTES: u64 = 256 << 20;
const MAX_SCAN_RECORDS: u64 = 2_000_000;
/// Most scans at one time: they take the disk and a core from the work.
const MAX_SCANS: usize = 1;
/// Most scans that run or wait for their turn; more are refused.
const MAX_WAITING_SCANS: usize = 64;
/// The longest time from the making of an id to the record of its task. A request waits in the inbox for less.
const MAX_CREATION_DELAY_MS: u64 = 60_000;

/// A purged task, as far as the scan went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgedTask {
    pub created_at: Time,
    /// When and how it ended.
    pub end: Option<(Time, TaskState)>,
    pub purged_at: Option<Time>,
}

/// Scans the ledger for purged tasks. Cheap to clone: clones share the bounds.
#[derive(Clone)]
pub(crate) struct PurgedTasks {
    reader: Arc<dyn Reader>,
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl PurgedTasks {
    pub(crate) fn new(reader: Arc<dyn Reader>) -> PurgedTasks {
        let [running, waiting] = [MAX_SCANS, MAX_WAITING_SCANS].map(|max| Arc::new(Semaphore::new(max)));
        PurgedTasks { reader, running, waiting }
    }

    /// A task that is not among the kept ones.
    pub(crate) async fn find(
        &self,
        scope: Scope,
        task: TaskId,
        now: Time,
    ) -> Result<Option<PurgedTask>, HistoryError> {
        let Some(made_at) = task.made_at().filter(|made_at| *made_at <= now) else { return Ok(None) };
        let _waiting = self.waiting.try_acquire().map_err(|_| Unavailable::Overloaded)?;
        let permit = self.running.clone().acquire_owned().await.map_err(|_| Unavailable::Stopped)?;
        let reader = self.reader.clone();
        let scanned = tokio::task::spawn_blocking(move || {
            // A scan that nobody waits for any more goes on to its end, and counts until then.
            let _permit = permit;
            Scan::new(scope, task, made_at, MAX_SCAN_BYTES, MAX_SCAN_RECORDS).run(&*reader)
        });
        scanned.await.map_err(|_| HistoryError::Unavailable(Unavailable::Stopped))?
    }
}

struct Scan {
    scope: Scope,
    task: TaskId,
    finder: TaskFinder,
    made_at: Time,
    left_bytes: u64,
    left_records: u64,
    found: Option<PurgedTask>,
}

impl Scan {
    fn new(scope: Scope, task: TaskId, made_at: Time, left_bytes: u64, left_records: u64) -> Scan {
        let finder = TaskFinder::new(task);
        Scan { scope, task, finder, made_at, left_bytes, left_records, found: None }
    }

    fn run(mut self, reader: &dyn Reader) -> Result<Option<PurgedTask>, HistoryError> {
        let mut failed = Ok(());
        let from = reader.seek(self.made_at).map_err(failure)?;
        let read = reader.read(from, Position(u64::MAX), &mut |_, bytes| {
            self.visit(bytes).unwrap_or_else(|error| {
                failed = Err(HistoryError::Ledger(error.to_string()));
                ControlFlow::Break(())
            })
        });
        match read {
            // Trimmed between the two calls.
            Err(error) if error.kind() == ErrorKind::Trimmed => return Ok(None),
            read => read.map_err(failure)?,
        }
        failed.map(|()| self.found)
    }

    fn visit(&mut self, bytes: &[u8]) -> Result<ControlFlow<()>, DecodeError> {
        let length = bytes.len() as u64;
        if self.left_records == 0 || self.left_bytes < length {
            return Ok(ControlFlow::Break(()));
        }
        self.left_records -= 1;
        self.left_bytes -= length;
        let last_creation = self.made_at.plus_ms(MAX_CREATION_DELAY_MS);
        if self.found.is_none() && record::time(bytes)? > last_creation {
            return Ok(ControlFlow::Break(()));
        }
        if self.finder.may_name_task(bytes) { self.record(bytes) } else { Ok(ControlFlow::Continue(())) }
    }

    fn record(&mut self, bytes: &[u8]) -> Result<ControlFlow<()>, DecodeError> {
        let record = record::decode(bytes)?;
        let at = record.at;
        match (&record.event, &mut self.found) {
            (Event::TaskCreated(created), found)
                if created.task == self.task && created.queue.scope == self.scope =>
            {
                *found = Some(PurgedTask { created_at: at, end: None, purged_at: None });
            }
            (Event::TasksPurged(purged), Some(found)) if purged.tasks.contains(&self.task) => {
                found.purged_at = Some(at);
                return Ok(ControlFlow::Break(()));
            }
            (event, Some(found)) if event.task() == Some(self.task) => {
                found.end = final_state(event).map(|state| (at, state)).or(found.end);
            }
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// The final state that an event puts its task into, if it does.
fn final_state(event: &Event) -> Option<TaskState> {
    match event {
        Event::TaskCompleted(_) => Some(TaskState::Completed),
        Event::TaskFailed(failed) if failed.next == NextStep::Final => Some(TaskState::Failed),
        Event::TaskDead(_) => Some(TaskState::Dead),
        _ => None,
    }
}

fn failure(error: ledger::Error) -> HistoryError {
    HistoryError::Ledger(error.to_string())
}

#[cfg(test)]
mod tests {
    use authority::event::{TaskCreated, TaskDead, TasksPurged};
    use authority::{DeadReason, QueueKey};
    use ledger::memory::MemoryStorage;
    use ledger::{BatchBuilder, Ledger};

    use super::*;

    const TASK: TaskId = TaskId(1_000 << 80 | 7 << 76 | 2 << 62 | 5);
    const OTHER: TaskId = TaskId(1_000 << 80 | 7 << 76 | 2 << 62 | 6);

    fn scope(tenant: &str) -> Scope {
        Scope { tenant: tenant.into(), workspace: "w".into() }
    }

    fn created(task: TaskId, tenant: &str) -> Event {
        Event::TaskCreated(Box::new(TaskCreated {
            task,
            queue: Arc::new(QueueKey { scope: scope(tenant), name: "q".into() }),
            payload: Arc::from(*b"{}"),
            priority: 0,
            not_before: None,
            properties: Arc::default(),
            options: None,
            operation: None,
        }))
    }

    fn dead(task: TaskId) -> Event {
        Event::TaskDead(TaskDead { task, reason: DeadReason::Killed, detail: None, report: None })
    }

    fn purged(task: TaskId) -> Event {
        Event::TasksPurged(TasksPurged { tasks: vec![task] })
    }

    /// A ledger with these records, each at a time.
    fn ledger(records: &[(u64, Event)]) -> MemoryStorage {
        let mut batch = BatchBuilder::new(Position(1));
        for (at, event) in records {
            let mut bytes = Vec::new();
            record::encode(Time(*at), None, event, &mut bytes);
            batch.push(&bytes).unwrap();
        }
        let mut ledger = MemoryStorage::default();
        ledger.append(&batch.finish(0)).unwrap();
        ledger
    }

    fn scan(records: &[(u64, Event)], tenant: &str, max_records: u64) -> Option<PurgedTask> {
        let scan = Scan::new(scope(tenant), TASK, Time(1_000), MAX_SCAN_BYTES, max_records);
        scan.run(&ledger(records)).unwrap()
    }

    fn life() -> [(u64, Event); 6] {
        [
            (900, created(OTHER, "t")),
            (1_001, created(TASK, "t")),
            (2_000, dead(OTHER)),
            (3_000, dead(TASK)),
            (9_000_000, purged(OTHER)),
            (9_000_001, purged(TASK)),
        ]
    }

    #[test]
    fn a_purged_task_is_found_with_its_end_by_its_own_tenant_only() {
        let end = Some((Time(3_000), TaskState::Dead));
        let whole = PurgedTask { created_at: Time(1_001), end, purged_at: Some(Time(9_000_001)) };
        assert_eq!(scan(&life(), "t", 6), Some(whole));
        assert_eq!(scan(&life(), "other", 6), None);
    }

    #[test]
    fn a_scan_ends_at_its_bounds_with_what_it_has_found() {
        let found = |end| Some(PurgedTask { created_at: Time(1_001), end, purged_at: None });
        assert_eq!(scan(&life(), "t", 1), None);
        assert_eq!(scan(&life(), "t", 3), found(None));
        assert_eq!(scan(&life(), "t", 5), found(Some((Time(3_000), TaskState::Dead))));
        let no_bytes = Scan::new(scope("t"), TASK, Time(1_000), 10, 6);
        assert_eq!(no_bytes.run(&ledger(&life())).unwrap(), None);
    }

    #[test]
    fn a_creation_long_after_the_id_was_made_is_not_looked_for() {
        let late = 1_001 + MAX_CREATION_DELAY_MS;
        assert_eq!(scan(&[(late, created(TASK, "t")), (late, dead(TASK))], "t", 6), None);
    }

    #[tokio::test]
    async fn scans_beyond_their_bound_are_refused() {
        let tasks = PurgedTasks::new(Arc::new(ledger(&life())));
        let find = |made_at| tasks.find(scope("t"), TASK, Time(made_at));
        let all = tasks.waiting.acquire_many(MAX_WAITING_SCANS as u32).await.unwrap();
        let refused = find(1_000).await;
        assert!(matches!(refused, Err(HistoryError::Unavailable(Unavailable::Overloaded))), "{refused:?}");
        assert!(matches!(find(999).await, Ok(None)), "the id is from the future, and costs no scan");
        drop(all);
        assert!(matches!(find(1_000).await, Ok(Some(_))));
    }
}
