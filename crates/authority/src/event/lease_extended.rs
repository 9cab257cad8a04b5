//! Applies [`LeaseExtended`].

use super::{At, InvalidTransition, LeaseExtended};
use crate::Phase;
use crate::state::State;

impl LeaseExtended {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        let (slot, task) = at.leased_in_time(state, self.task, self.fencing_token)?;
        if task.lease().is_some_and(|lease| self.expires_at <= lease.expires_at) {
            return Err(at.invalid(format!("lease {} was not extended but shortened", self.fencing_token)));
        }
        state.change(slot, at, |task| {
            if let Phase::Leased(lease) = &mut task.phase {
                lease.expires_at = self.expires_at;
                lease.extended_at = at.time;
            }
        });
        Ok(())
    }
}
