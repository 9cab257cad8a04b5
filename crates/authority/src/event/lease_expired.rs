//! Time revoked a lease: the task waits again. A fact about time, never something a worker asks for.

use super::{At, Illegal};
use crate::quirk::{self, Quirk};
use crate::state::State;
use crate::{Phase, Position, TaskId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseExpired {
    pub task: TaskId,
    pub lease: Position,
    pub cause: ExpiryCause,
    /// Whether this was the last attempt that the policy allows; TaskDead follows in the same batch.
    pub exhausted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryCause {
    /// The worker was not heard of in time.
    Silence,
    /// The attempt reached its own time limit.
    Timeout,
}

impl LeaseExpired {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), Illegal> {
        let (slot, task) = at.leased(state, self.task, self.lease)?;
        if task.lease().is_some_and(|lease| !lease.is_over(at.time)) {
            return Err(at.illegal(format!("lease {} has not passed its time", self.lease)));
        }
        if task.cancel.is_some() && !quirk::is(Quirk::CancelledWaitsAgain) {
            return Err(at.illegal(format!("task {} is being cancelled and cannot wait again", self.task)));
        }
        state.change(slot, at, |task| {
            task.releases += u32::from(quirk::is(Quirk::ExpiryCostsNothing));
            task.phase = Phase::Waiting { since: at.position, not_before: None, exhausted: self.exhausted }
        });
        Ok(())
    }
}
