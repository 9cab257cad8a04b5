//! Applies [`AttemptStarted`].

use super::{At, AttemptStarted, InvalidTransition};
use crate::Phase;
use crate::state::State;

impl AttemptStarted {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        let (slot, task) = at.leased_in_time(state, self.task, self.fencing_token)?;
        if task.lease().is_some_and(|lease| lease.started_by.is_some()) {
            return Err(
                at.invalid(format!("attempt {} of task {} was started already", task.attempt, self.task))
            );
        }
        state.change(slot, at, |task| {
            if let Phase::Leased(lease) = &mut task.phase {
                lease.started_by = Some(self.worker.clone());
            }
        });
        Ok(())
    }
}
