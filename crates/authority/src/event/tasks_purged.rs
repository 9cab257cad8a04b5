//! Final tasks were forgotten after their retention.

use super::{At, Illegal};
use crate::TaskId;
use crate::quirk::{self, Quirk};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TasksPurged {
    pub tasks: Vec<TaskId>,
}

impl TasksPurged {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), Illegal> {
        for &id in &self.tasks {
            let slot = at.task(state, id)?;
            if !state.task_at(slot).is_final() && !quirk::is(Quirk::WaitingTaskPurged) {
                return Err(at.illegal(format!("task {id} is not final and cannot be purged")));
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
