//! A waiter left an execution; the others keep waiting.

use std::sync::Arc;

use super::{At, InvalidTransition};
use crate::TaskId;
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationDetached {
    pub task: TaskId,
    pub operation: Arc<str>,
}

impl OperationDetached {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        let slot = at.task(state, self.task)?;
        if !state.task_at(slot).operations.contains(&self.operation) {
            return Err(at.invalid(format!("{} does not wait for task {}", self.operation, self.task)));
        }
        state.change(slot, at, |task| task.operations.retain(|name| *name != self.operation));
        Ok(())
    }
}
