//! Finds out how a purged task ended, from the records that the ledger still has.
//!
//! A task's id says when the task was created, so one scan finds the record of its creation and goes on to its end and its
//! purge. Scans are bounded, run off the writer's thread, and reveal nothing about the tasks of another scope. A tenant may
//! have few of them at a time, and asks in vain only once: anyone can make up ids of the past.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
/// Most of them of one tenant, so that one tenant cannot keep the others from theirs.
const MAX_TENANT_SCANS: usize = 8;
const _: () = assert!(MAX_TENANT_SCANS * 2 <= MAX_WAITING_SCANS, "one tenant leaves scans to others");
/// Most ids that are remembered as those of no task.
const MAX_ABSENT: usize = 4_096;
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
    tenants: Arc<TenantScans>,
    absent: Arc<Mutex<AbsentTasks>>,
}

impl PurgedTasks {
    pub(crate) fn new(reader: Arc<dyn Reader>) -> PurgedTasks {
        let [running, waiting] = [MAX_SCANS, MAX_WAITING_SCANS].map(|max| Arc::new(Semaphore::new(max)));
        PurgedTasks { reader, running, waiting, tenants: Arc::default(), absent: Arc::default() }
    }

    /// A task that is not among the kept ones.
    pub(crate) async fn find(
        &self,
        scope: Scope,
        task: TaskId,
        now: Time,
    ) -> Result<Option<PurgedTask>, HistoryError> {
        let Some(made_at) = task.made_at().filter(|made_at| *made_at <= now) else { return Ok(None) };
        let key = (scope.clone(), task);
        if lock(&self.absent).contains(&key) {
            return Ok(None);
        }
        let _turn = self.tenants.enter(&scope.tenant).ok_or(Unavailable::Overloaded)?;
        let _waiting = self.waiting.try_acquire().map_err(|_| Unavailable::Overloaded)?;
        let permit = self.running.clone().acquire_owned().await.map_err(|_| Unavailable::Stopped)?;
        let reader = self.reader.clone();
        let scanned = tokio::task::spawn_blocking(move || {
            // A scan that nobody waits for any more goes on to its end, and counts until then.
            let _permit = permit;
            Scan::new(scope, task, made_at, MAX_SCAN_BYTES, MAX_SCAN_RECORDS).run(&*reader)
        });
        let found = scanned.await.map_err(|_| HistoryError::Unavailable(Unavailable::Stopped))??;
        // A younger id may be that of a task whose record is still to come.
        if found.is_none() && now.since_ms(made_at) > MAX_CREATION_DELAY_MS {
            lock(&self.absent).insert(key);
        }
        Ok(found)
    }
}

/// Counts the scans of each tenant that has any.
#[derive(Default)]
struct TenantScans(Mutex<HashMap<Arc<str>, usize>>);

impl TenantScans {
    /// None when the tenant has as many scans as it may. The scan counts until the guard is dropped.
    fn enter(&self, tenant: &Arc<str>) -> Option<TenantScan<'_>> {
        let mut tenants = lock(&self.0);
        let count = tenants.entry(tenant.clone()).or_default();
        if *count >= MAX_TENANT_SCANS {
            return None;
        }
        *count += 1;
        Some(TenantScan { scans: self, tenant: tenant.clone() })
    }
}

struct TenantScan<'a> {
    scans: &'a TenantScans,
    tenant: Arc<str>,
}

impl Drop for TenantScan<'_> {
    fn drop(&mut self) {
        let mut tenants = lock(&self.scans.0);
        if let Some(count) = tenants.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                tenants.remove(&self.tenant);
            }
        }
    }
}

/// Ids that are those of no task of their scope; the oldest are forgotten first.
#[derive(Default)]
struct AbsentTasks {
    known: HashSet<(Scope, TaskId)>,
    oldest_first: VecDeque<(Scope, TaskId)>,
}

impl AbsentTasks {
    fn contains(&self, key: &(Scope, TaskId)) -> bool {
        self.known.contains(key)
    }

    fn insert(&mut self, key: (Scope, TaskId)) {
        if !self.known.insert(key.clone()) {
            return;
        }
        self.oldest_first.push_back(key);
        if self.oldest_first.len() > MAX_ABSENT
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic between two steps can leave a count too high or an id that is forgotten, which does no harm.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            by: None,
        }))
    }

    fn dead(task: TaskId) -> Event {
        Event::TaskDead(TaskDead { task, reason: DeadReason::Killed, detail: None, report: None, by: None })
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

    /// Anyone may make up ids, each of which cost a scan: one tenant could take all turns of the others.
    #[tokio::test]
    async fn a3_one_tenant_does_not_take_the_scans_of_another() {
        let tasks = PurgedTasks::new(Arc::new(ledger(&life())));
        let greedy: Arc<str> = Arc::from("greedy");
        let held: Vec<_> = (0..MAX_TENANT_SCANS).map(|_| tasks.tenants.enter(&greedy).unwrap()).collect();
        let refused = tasks.find(scope("greedy"), TASK, Time(1_000)).await;
        assert!(matches!(refused, Err(HistoryError::Unavailable(Unavailable::Overloaded))), "{refused:?}");
        assert!(matches!(tasks.find(scope("t"), TASK, Time(1_000)).await, Ok(Some(_))));
        drop(held);
        assert!(matches!(tasks.find(scope("greedy"), TASK, Time(1_000)).await, Ok(None)));
        assert!(lock(&tasks.tenants.0).is_empty(), "nobody is counted who has no scan");
    }

    #[tokio::test]
    async fn a3_an_id_of_no_task_costs_one_scan() {
        let tasks = PurgedTasks::new(Arc::new(ledger(&life())));
        let find = |tenant, now| tasks.find(scope(tenant), TASK, Time(now));
        let old = 1_000 + MAX_CREATION_DELAY_MS + 1;
        assert!(matches!(find("young", old - 1).await, Ok(None)));
        assert!(matches!(find("other", old).await, Ok(None)));
        // Nothing can be scanned any more.
        tasks.running.close();
        assert!(matches!(find("other", old).await, Ok(None)), "it is known");
        assert!(find("young", old).await.is_err(), "its record could still have come");
        assert!(find("t", old).await.is_err(), "another scope may have the task");
    }

    #[test]
    fn a3_the_ids_of_no_task_are_bounded() {
        let mut absent = AbsentTasks::default();
        let key = |n: usize| (scope("t"), TaskId(n as u128));
        (0..2 * MAX_ABSENT).for_each(|n| absent.insert(key(n)));
        (0..2).for_each(|_| absent.insert(key(MAX_ABSENT)));
        assert_eq!((absent.known.len(), absent.oldest_first.len()), (MAX_ABSENT, MAX_ABSENT));
        assert!(absent.contains(&key(MAX_ABSENT)) && !absent.contains(&key(MAX_ABSENT - 1)));
    }
}
