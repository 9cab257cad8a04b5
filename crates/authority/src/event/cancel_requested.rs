//! Someone wants a leased task to stop. Its worker may still finish; it will not wait again.

use std::sync::Arc;

use super::{At, InvalidTransition};
use crate::state::State;
use crate::{CancelCause, CancelRequest, TaskId, TaskState, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelRequested {
    pub task: TaskId,
    pub cause: CancelCause,
    pub reason: Arc<str>,
    pub grace_until: Time,
}

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
