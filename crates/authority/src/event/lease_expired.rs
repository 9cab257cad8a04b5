//! Applies [`LeaseExpired`].

use super::{At, ExpiryCause, InvalidTransition, LeaseExpired};
use crate::Phase;
use crate::rules;
use crate::state::State;

impl LeaseExpired {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        let (slot, task) = at.leased(state, self.task, self.fencing_token)?;
        let may_be_early = self.cause == ExpiryCause::WorkerLost;
        if task.lease().is_some_and(|lease| !may_be_early && !lease.is_over(at.time)) {
            return Err(at.invalid(format!("lease {} has not passed its time", self.fencing_token)));
        }
        if self.since.is_some_and(|since| since >= self.fencing_token) {
            return Err(at.invalid(format!("task {} did not wait since record {:?}", self.task, self.since)));
        }
        if rules::cancel_at_expiry(task).is_some() {
            return Err(at.invalid(format!("task {} is being cancelled and cannot wait again", self.task)));
        }
        state.change(slot, at, |task| {
            task.releases += rules::releases_by_expiry();
            let since = self.since.unwrap_or(at.position);
            task.phase = Phase::Waiting { since, not_before: None, exhausted: self.exhausted }
        });
        Ok(())
    }
}
