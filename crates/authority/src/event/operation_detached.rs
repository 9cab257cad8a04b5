//! Applies [`OperationDetached`].

use super::{At, InvalidTransition, OperationDetached};
use crate::state::State;

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
