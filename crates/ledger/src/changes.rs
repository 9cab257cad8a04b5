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
                let attempts = (*task, 0)..=(*task, u32::MAX);
                let of_task: Vec<_> = self.attempts.range(attempts).map(|(key, _)| *key).collect();
                of_task.iter().for_each(|key| drop(self.attempts.remove(key)));
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
            self.attempts.retain(|(task, _), _| task != id);
        }
        self.purged.extend(&later.purged);
        self.created.extend(&later.created);
        self.tasks.extend(later.tasks.iter().map(|(id, task)| (*id, task.clone())));
        self.attempts.extend(later.attempts.iter().map(|(key, attempt)| (*key, attempt.clone())));
    }

    pub fn is_empty(&self) -> bool {
        self.created.is_empty()
            && self.purged.is_empty()
            && self.tasks.is_empty()
            && self.attempts.is_empty()
            && self.touched.is_empty()
    }
}
