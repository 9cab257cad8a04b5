//! Do a dead letter again, as a new task that names the old one. Final states never reopen.

use std::sync::Arc;

use super::admission::admit_task;
use super::{Decision, Refusal};
use crate::Time;
use crate::event::{Event, TaskCreated};
use crate::{Actor, Scope, State, TaskId, TaskOptions, TaskState};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedriveTask {
    pub scope: Scope,
    pub task: TaskId,
    /// The new task's id, made outside, unique.
    pub id: TaskId,
    /// Who asks for it.
    pub by: Option<Arc<Actor>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedriveAnswer {
    Created(TaskId),
    /// It was redriven before, as this task.
    Existing(TaskId),
    UnknownTask,
    /// Only FAILED and DEAD tasks are done again.
    NotADeadLetter(TaskState),
    Refused(Refusal),
}

impl RedriveTask {
    pub(super) fn decide(&self, state: &State, _now: Time) -> Decision<RedriveAnswer> {
        let Some(slot) = state.find(&self.scope, self.task) else {
            return Decision::only(RedriveAnswer::UnknownTask);
        };
        let task = state.task_at(slot);
        if !matches!(task.state(), TaskState::Failed | TaskState::Dead) {
            return Decision::only(RedriveAnswer::NotADeadLetter(task.state()));
        }
        if let Some(existing) = state.redrive_of(self.task) {
            return Decision::only(RedriveAnswer::Existing(existing));
        }
        let queue = &state.queue_at(slot).key;
        // The dedup key stays with the old task, and a deadline that has passed would kill the new one at once.
        let old = task.options.as_deref().cloned().unwrap_or_default();
        let options = TaskOptions { dedup: None, deadline: None, redrive_of: Some(task.id), ..old };
        let created = TaskCreated {
            task: self.id,
            queue: queue.clone(),
            payload: task.payload.clone(),
            priority: task.priority,
            not_before: None,
            properties: task.properties.clone(),
            options: Some(Arc::new(options)),
            operation: None,
            by: self.by.clone(),
        };
        if let Err(refusal) = admit_task(state, &created) {
            return Decision::only(RedriveAnswer::Refused(refusal));
        }
        Decision::with(Event::TaskCreated(Box::new(created)), RedriveAnswer::Created(self.id))
    }
}
