//! A client stops waiting for an execution; the others keep waiting.

use std::sync::Arc;

use super::{AttachAnswer, Decision};
use crate::event::{Event, OperationDetached};
use crate::{Actor, Scope, State, TaskId, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetachOperation {
    pub scope: Scope,
    pub task: TaskId,
    pub operation: Arc<str>,
    /// Who asks for it.
    pub by: Option<Arc<Actor>>,
}

impl DetachOperation {
    pub(super) fn decide(&self, state: &State, _now: Time) -> Decision<AttachAnswer> {
        let Some(slot) = state.find(&self.scope, self.task) else {
            return Decision::only(AttachAnswer::UnknownTask);
        };
        if !state.task_at(slot).operations.contains(&self.operation) {
            return Decision::only(AttachAnswer::Done);
        }
        let (operation, by) = (self.operation.clone(), self.by.clone());
        let detached = OperationDetached { task: self.task, operation, by };
        Decision::with(Event::OperationDetached(detached), AttachAnswer::Done)
    }
}
