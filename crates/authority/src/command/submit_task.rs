//! Accept a task, once for each dedup key.

use std::sync::Arc;

use super::Decision;
use super::admission::admit_task;
use crate::event::{Event, TaskCreated};
use crate::rules;
use crate::{Properties, QueueKey, State, TaskId, TaskOptions, TaskView, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitTask {
    /// Made outside, unique.
    pub id: TaskId,
    pub queue: Arc<QueueKey>,
    pub payload: Arc<[u8]>,
    pub priority: i32,
    pub delay_ms: u64,
    pub properties: Arc<Properties>,
    pub options: Option<Arc<TaskOptions>>,
    /// The first waiter of an execution.
    pub operation: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmitAnswer {
    Created(TaskId),
    /// The dedup key and the content are those of this task.
    Existing(Box<TaskView>),
    /// The dedup key belongs to this task, which has other content.
    DedupConflict(TaskId),
    Refused(Refusal),
}

/// Why nothing more is accepted now. The same request may be repeated later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue holds as many unfinished tasks as it may.
    QueueFull { max: u64 },
    /// The tasks of the tenant take as much memory as one tenant may while so much is free.
    StateFull { tenant: Arc<str>, bytes: usize, free: usize },
    /// The tenant has as many open tasks as its limit permits.
    TenantTasks { tenant: Arc<str>, max: usize },
    /// The tasks of the tenant take as much memory as its limit permits.
    TenantBytes { tenant: Arc<str>, max: usize },
    /// The tenant has as many queues as one tenant may while so many are free.
    TooManyQueues { tenant: Arc<str>, queues: usize, free: usize },
    /// The tenant has no queue, and as many others as there may be have one.
    TooManyTenants { tenant: Arc<str> },
    /// Tasks are accepted for configured queues only, and this queue is not.
    UnknownQueue { queue: Arc<str> },
    /// The queue has waiting tasks with as many different requirements as it may.
    TooManyRequirements,
    /// The disk is full.
    NoSpace,
}

impl SubmitTask {
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<SubmitAnswer> {
        if let Some(dedup) = self.options.as_ref().and_then(|options| options.dedup.as_ref())
            && let Some(slot) = state.dedup(&self.queue, &dedup.key)
            && rules::keeps_dedup_key(state.task_at(slot))
        {
            let existing = state.task_at(slot);
            let same = existing.options.as_ref().is_some_and(|options| options.dedup.as_ref() == Some(dedup));
            return Decision::only(if same {
                SubmitAnswer::Existing(Box::new(state.view_at(slot)))
            } else {
                SubmitAnswer::DedupConflict(existing.id)
            });
        }
        if state.slot_of(self.id).is_some() {
            // Ids are unique by construction, so the same id is the same call again. Should it ever belong to another
            // scope, nothing of that task is shown.
            return Decision::only(match state.view_in(&self.queue.scope, self.id) {
                Some(view) => SubmitAnswer::Existing(Box::new(view)),
                None => SubmitAnswer::DedupConflict(self.id),
            });
        }
        if !state.takes_submits(&self.queue) {
            let queue = self.queue.name.clone();
            return Decision::only(SubmitAnswer::Refused(Refusal::UnknownQueue { queue }));
        }
        let created = TaskCreated {
            task: self.id,
            queue: state
                .queue_by_key(&self.queue)
                .map_or_else(|| self.queue.clone(), |queue| queue.key.clone()),
            payload: self.payload.clone(),
            priority: self.priority,
            not_before: (self.delay_ms > 0).then(|| now.plus_ms(self.delay_ms)),
            properties: self.properties.clone(),
            options: self.options.clone(),
            operation: self.operation.clone(),
            by: None,
        };
        if let Err(refusal) = admit_task(state, &created) {
            return Decision::only(SubmitAnswer::Refused(refusal));
        }
        Decision::with(Event::TaskCreated(Box::new(created)), SubmitAnswer::Created(self.id))
    }
}
