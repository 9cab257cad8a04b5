//! Applies [`TasksPurged`].

use super::{At, InvalidTransition, TasksPurged};
use crate::rules;
use crate::state::State;

impl TasksPurged {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        for &id in &self.tasks {
            let slot = at.task(state, id)?;
            if !rules::may_be_purged(state.task_at(slot)) {
                return Err(at.invalid(format!("task {id} is not final and cannot be purged")));
            }
        }
        for &id in &self.tasks {
            // A repeated id passed the check above and is gone by its second turn.
            if let Some(slot) = state.slot_of(id) {
                state.remove(slot);
            }
        }
        Ok(())
    }
}
