//! The net change that a batch makes to tasks, for backends that keep tables of tasks beside the ledger.
//!
//! Whoever applies events to a state notes them here: the coordinator for the batch that it forms, a rebuild for the
//! records that it replays. Nothing is collected for a backend that wants nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use authority::{Event, Lease, Position, QueueKey, State, Task, TaskError, TaskId, Time};

/// What a backend wants to know of the tasks of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WantedChanges {
    #[default]
    Nothing,
    /// Which tasks were created.
    Created,
    /// Every task as it is after the batch, and every attempt that the batch ends.
    All,
}

/// The net change of some records, which follow each other.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Also those that were purged again: what was enqueued for them must not become a task twice.
    pub created: BTreeSet<TaskId>,
    pub purged: BTreeSet<TaskId>,
    /// The tasks that were touched, as they are after the last of the records.
    pub tasks: BTreeMap<TaskId, ChangedTask>,
    pub attempts: BTreeMap<(TaskId, u32), EndedAttempt>,
    touched: BTreeSet<TaskId>,
}

/// A task with its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedTask {
    pub queue: Arc<QueueKey>,
    pub task: Task,
}

/// An attempt that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedAttempt {
    pub task: TaskId,
    pub attempt: u32,
    pub queue: Arc<QueueKey>,
    pub lease: Lease,
    pub ended_at: Time,
    /// The record that ended it.
    pub position: Position,
    pub outcome: AttemptOutcome,
    /// Why it expired, was released or was ended with its task.
    pub reason: Option<&'static str>,
    pub error: Option<TaskError>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    Completed,
    /// Its worker reported a failure, whether or not the task is tried again.
    Failed,
    /// Time or the loss of its worker revoked its lease.
    Expired,
    /// It was given back and does not count.
    Released,
    /// It ended with its task, which was cancelled or killed.
    Dead,
}

impl AttemptOutcome {
    pub fn name(self) -> &'static str {
        match self {
            AttemptOutcome::Completed => "COMPLETED",
            AttemptOutcome::Failed => "FAILED",
            AttemptOutcome::Expired => "EXPIRED",
            AttemptOutcome::Released => "RELEASED",
            AttemptOutcome::Dead => "DEAD",
        }
    }
}

/// What [`Changes::after`] needs to know of a task from before its event.
pub struct Before(Option<(Arc<QueueKey>, u32, Lease)>);

impl Before {
    /// To be called before the event is applied.
    pub fn of(state: &State, event: &Event) -> Before {
        let held = event.task().and_then(|id| {
            let task = state.task(id)?;
            Some((state.queue_of(id)?.clone(), task.attempt, task.lease()?.clone()))
        });
        Before(held)
    }
}

impl Changes {
    /// Notes an event that was just applied.
    pub fn after(&mut self, before: Before, state: &State, at: Time, position: Position, event: &Event) {
        if let Event::TasksPurged(purged) = event {
            for task in &purged.tasks {
                self.touched.remove(task);
                self.purged.insert(*task);
                self.remove_attempts(*task);
            }
        }
        let Some(id) = event.task() else { return };
        self.touched.insert(id);
        if matches!(event, Event::TaskCreated(_)) {
            self.created.insert(id);
        }
        let Before(Some((queue, attempt, lease))) = before else { return };
        let still_held = state.task(id).and_then(|task| task.lease());
        if still_held.is_some_and(|held| held.fencing_token == lease.fencing_token) {
            return;
        }
        let (outcome, reason, error) = match event {
            Event::TaskCompleted(_) => (AttemptOutcome::Completed, None, None),
            Event::TaskFailed(failed) => (AttemptOutcome::Failed, None, Some(failed.error.clone())),
            Event::LeaseExpired(expired) => (AttemptOutcome::Expired, Some(expired.cause.name()), None),
            Event::LeaseReleased(released) => (AttemptOutcome::Released, Some(released.cause.name()), None),
            Event::TaskDead(dead) => {
                let error = dead.report.as_ref().map(|report| report.error.clone());
                (AttemptOutcome::Dead, Some(dead.reason.name()), error)
            }
            // No other event ends an attempt.
            _ => return,
        };
        let ended =
            EndedAttempt { task: id, attempt, queue, lease, ended_at: at, position, outcome, reason, error };
        self.attempts.insert((id, attempt), ended);
    }

    /// Notes that a task was created, and nothing else.
    pub fn created(&mut self, event: &Event) {
        if let Event::TaskCreated(created) = event {
            self.created.insert(created.task);
        }
    }

    /// Adds the tasks that were touched, as they are now: the last of the records was applied.
    pub fn close(&mut self, state: &State) {
        for id in std::mem::take(&mut self.touched) {
            if let (Some(task), Some(queue)) = (state.task(id), state.queue_of(id)) {
                self.tasks.insert(id, ChangedTask { queue: queue.clone(), task: task.clone() });
            }
        }
    }

    /// Adds the changes of the records that follow.
    pub fn merge(&mut self, later: &Changes) {
        for id in &later.purged {
            self.tasks.remove(id);
            self.remove_attempts(*id);
        }
        self.purged.extend(&later.purged);
        self.created.extend(&later.created);
        self.tasks.extend(later.tasks.iter().map(|(id, task)| (*id, task.clone())));
        self.attempts.extend(later.attempts.iter().map(|(key, attempt)| (*key, attempt.clone())));
    }

    fn remove_attempts(&mut self, task: TaskId) {
        let attempts = (task, 0)..=(task, u32::MAX);
        let of_task: Vec<_> = self.attempts.range(attempts).map(|(key, _)| *key).collect();
        of_task.iter().for_each(|key| drop(self.attempts.remove(key)));
    }

    /// How many tasks and attempts it holds.
    pub fn len(&self) -> usize {
        self.created.len() + self.purged.len() + self.tasks.len() + self.attempts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.created.is_empty()
            && self.purged.is_empty()
            && self.tasks.is_empty()
            && self.attempts.is_empty()
            && self.touched.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use authority::Scope;

    use super::*;

    /// An attempt that is told from others by its position.
    fn attempt(task: u128, attempt: u32, position: u64) -> ((TaskId, u32), EndedAttempt) {
        let scope = Scope { tenant: "t".into(), workspace: "w".into() };
        let lease = Lease {
            fencing_token: Position(1),
            worker: "w".into(),
            session: None,
            request: None,
            granted_at: Time(1),
            length_ms: 1,
            expires_at: Time(2),
            extended_at: Time(1),
            started_by: None,
            contract: None,
            since: None,
        };
        let ended = EndedAttempt {
            task: TaskId(task),
            attempt,
            queue: Arc::new(QueueKey { scope, name: "q".into() }),
            lease,
            ended_at: Time(2),
            position: Position(position),
            outcome: AttemptOutcome::Completed,
            reason: None,
            error: None,
        };
        ((TaskId(task), attempt), ended)
    }

    #[test]
    fn a_purge_removes_all_attempts_of_its_task_and_none_of_another() {
        let (first, last) = (0, u128::MAX);
        let mut changes = Changes::default();
        for task in [first, 4, 5, 6, 7, last] {
            changes.created.insert(TaskId(task));
            changes.attempts.extend([0, 1, 2, u32::MAX].map(|n| attempt(task, n, 10)));
        }
        // 6 is submitted again after its purge, 7 has only another attempt, and nobody knows 8.
        let purged = BTreeSet::from([first, 5, 6, 8, last].map(TaskId));
        let attempts = BTreeMap::from([attempt(6, 1, 20), attempt(7, 3, 20)]);
        let later = Changes { purged: purged.clone(), attempts, ..Changes::default() };

        let mut expected = changes.attempts.clone();
        expected.retain(|(task, _), _| !purged.contains(task));
        expected.extend(later.attempts.clone());
        changes.merge(&later);
        assert_eq!(changes.attempts, expected);
        let left: Vec<_> =
            changes.attempts.iter().map(|((task, n), ended)| (task.0, *n, ended.position.0)).collect();
        let max = u32::MAX;
        let all = |task| [0, 1, 2, max].map(|n| (task, n, 10));
        let [four, seven] = [all(4), all(7)];
        let expected = [&four[..], &[(6, 1, 20)], &seven[..3], &[(7, 3, 20)], &seven[3..]].concat();
        assert_eq!(left, expected);
        assert_eq!((changes.purged, changes.created.len()), (purged, 6));
    }
}
