//! Applies [`OperationAttached`].

use super::{At, InvalidTransition, OperationAttached};
use crate::state::State;

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
