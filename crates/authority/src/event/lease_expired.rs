//! Applies [`LeaseExpired`].

use super::{At, InvalidTransition, LeaseExpired};
use crate::Phase;
use crate::rules;
use crate::state::State;

impl LeaseExpired {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        let (slot, task) = at.leased(state, self.task, self.fencing_token)?;
        if task.lease().is_some_and(|lease| !lease.is_over(at.time)) {
            return Err(at.invalid(format!("lease {} has not passed its time", self.fencing_token)));
        }
        if rules::cancel_at_expiry(task).is_some() {
            return Err(at.invalid(format!("task {} is being cancelled and cannot wait again", self.task)));
        }
        state.change(slot, at, |task| {
            task.releases += rules::releases_by_expiry();
            task.phase = Phase::Waiting { since: at.position, not_before: None, exhausted: self.exhausted }
        });
        Ok(())
    }
}
