//! A further waiter joined an execution.

use std::sync::Arc;

use super::{At, InvalidTransition};
use crate::TaskId;
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationAttached {
    pub task: TaskId,
    pub operation: Arc<str>,
}

impl OperationAttached {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        let slot = at.task(state, self.task)?;
        if state.task_at(slot).operations.contains(&self.operation) {
            return Err(at.invalid(format!("{} waits for task {} already", self.operation, self.task)));
        }
        state.change(slot, at, |task| task.operations.push(self.operation.clone()));
        Ok(())
    }
}
