//! Applies [`LeaseReleased`].

use super::{At, InvalidTransition, LeaseReleased};
use crate::Phase;
use crate::state::State;

impl LeaseReleased {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        let (slot, task) = at.leased_in_time(state, self.task, self.fencing_token)?;
        if task.cancel.is_some() {
            return Err(at.invalid(format!("task {} is being cancelled and cannot wait again", self.task)));
        }
        state.change(slot, at, |task| {
            task.releases += 1;
            task.phase = Phase::Waiting { since: at.position, not_before: None, exhausted: false };
        });
        Ok(())
    }
}
