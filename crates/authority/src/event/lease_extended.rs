//! A lease that was still alive was given more time. The task's state does not change.

use super::{At, Illegal};
use crate::state::State;
use crate::{Phase, Position, TaskId, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseExtended {
    pub task: TaskId,
    pub lease: Position,
    pub expires_at: Time,
}

impl LeaseExtended {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), Illegal> {
        let (slot, task) = at.leased_in_time(state, self.task, self.lease)?;
        if task.lease().is_some_and(|lease| self.expires_at <= lease.expires_at) {
            return Err(at.illegal(format!("lease {} was not extended but shortened", self.lease)));
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
