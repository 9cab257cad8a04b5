//! A further client waits for an execution that is already on its way.

use std::sync::Arc;

use super::Decision;
use crate::event::{Event, OperationAttached};
use crate::limits::MAX_OPERATIONS;
use crate::{Scope, State, TaskId, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachOperation {
    pub scope: Scope,
    pub task: TaskId,
    pub operation: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachAnswer {
    Done,
    UnknownTask,
    TooMany,
}

impl AttachOperation {
    pub(super) fn decide(&self, state: &State, _now: Time) -> Decision<AttachAnswer> {
        let Some(slot) = state.find(&self.scope, self.task) else {
            return Decision::only(AttachAnswer::UnknownTask);
        };
        let operations = &state.task_at(slot).operations;
        if operations.contains(&self.operation) {
            return Decision::only(AttachAnswer::Done);
        }
        if operations.len() >= MAX_OPERATIONS {
            return Decision::only(AttachAnswer::TooMany);
        }
        let attached = OperationAttached { task: self.task, operation: self.operation.clone() };
        Decision::with(Event::OperationAttached(attached), AttachAnswer::Done)
    }
}
