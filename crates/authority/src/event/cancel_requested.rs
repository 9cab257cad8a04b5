//! Applies [`CancelRequested`].

use super::{At, CancelRequested, InvalidTransition};
use crate::state::State;
use crate::{CancelRequest, TaskState};

impl CancelRequested {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        let slot = at.task(state, self.task)?;
        let task = state.task_at(slot);
        if task.state() != TaskState::Leased || task.cancel.is_some() {
            return Err(at.invalid(format!(
                "task {} is {:?} and cannot be asked to stop",
                self.task,
                task.state()
            )));
        }
        let request = CancelRequest {
            cause: self.cause,
            reason: self.reason.clone(),
            requested_at: at.time,
            grace_until: self.grace_until,
        };
        state.change(slot, at, |task| task.cancel = Some(Box::new(request)));
        Ok(())
    }
}
