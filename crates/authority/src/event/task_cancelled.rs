//! Applies [`TaskCancelled`].

use super::{At, InvalidTransition, TaskCancelled};
use crate::state::State;
use crate::{Outcome, Report};

impl TaskCancelled {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        let slot = at.task(state, self.task)?;
        let task = state.task_at(slot);
        if task.lease().is_some_and(|lease| lease.fencing_token == self.fencing_token) {
            return Err(at.invalid(format!("lease {} is the task's current one", self.fencing_token)));
        }
        let granted = (1..=task.attempt).contains(&self.attempt);
        if !granted || self.fencing_token <= task.created || self.fencing_token > task.last {
            return Err(at.invalid(format!("task {} never granted lease {}", self.task, self.fencing_token)));
        }
        if task.report_of(self.fencing_token).is_some() {
            return Err(at.invalid(format!("lease {} was reported on already", self.fencing_token)));
        }
        state.change(slot, at, |task| {
            task.add_report(Report {
                attempt: self.attempt,
                fencing_token: self.fencing_token,
                digest: self.digest,
                outcome: Outcome::Discarded,
            });
        });
        Ok(())
    }
}
