//! Applies [`TaskCompleted`].

use super::{At, InvalidTransition, TaskCompleted};
use crate::state::State;
use crate::{Outcome, Phase, Report};

impl TaskCompleted {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        let (slot, _) = at.leased_in_time(state, self.task, self.fencing_token)?;
        state.change(slot, at, |task| {
            let outcome = Outcome::Completed;
            task.add_report(Report {
                attempt: task.attempt,
                fencing_token: self.fencing_token,
                digest: self.digest,
                outcome,
            });
            task.details = self.details.clone();
            task.phase = Phase::Completed { at: at.time, ended: at.position, result: self.result.clone() };
        });
        Ok(())
    }
}
