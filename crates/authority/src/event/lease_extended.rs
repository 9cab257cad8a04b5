//! A lease that was still alive was given more time. The task's state does not change.

use super::{At, InvalidTransition};
use crate::state::State;
use crate::{Phase, Position, TaskId, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseExtended {
    pub task: TaskId,
    pub fencing_token: Position,
    pub expires_at: Time,
}

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
