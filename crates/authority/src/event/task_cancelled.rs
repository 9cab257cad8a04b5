//! A report came without authority and was discarded. The task does not change, whatever its state; only the
//! answer is remembered, once for each lease. This is not a user's cancel, which is [`super::CancelRequested`].

use super::{At, Illegal};
use crate::state::State;
use crate::{Digest, Outcome, Position, Report, TaskId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCancelled {
    pub task: TaskId,
    pub lease: Position,
    pub attempt: u32,
    pub digest: Digest,
}

impl TaskCancelled {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), Illegal> {
        let slot = at.task(state, self.task)?;
        let task = state.task_at(slot);
        if task.lease().is_some_and(|lease| lease.number == self.lease) {
            return Err(at.illegal(format!("lease {} is the task's current one", self.lease)));
        }
        let granted = (1..=task.attempt).contains(&self.attempt);
        if !granted || self.lease <= task.created || self.lease > task.last {
            return Err(at.illegal(format!("task {} never granted lease {}", self.task, self.lease)));
        }
        if task.report_of(self.lease).is_some() {
            return Err(at.illegal(format!("lease {} was reported on already", self.lease)));
        }
        state.change(slot, at, |task| {
            task.reports.push(Report {
                attempt: self.attempt,
                lease: self.lease,
                digest: self.digest,
                outcome: Outcome::Discarded,
            });
        });
        Ok(())
    }
}
