//! Time revoked a lease: the task waits again. A fact about time, never something a worker asks for.

use super::{At, InvalidTransition};
use crate::rules;
use crate::state::State;
use crate::{Phase, Position, TaskId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseExpired {
    pub task: TaskId,
    pub fencing_token: Position,
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
