//! Applies [`TaskFailed`].

use super::{At, InvalidTransition, TaskFailed};
use crate::state::State;
use crate::{Outcome, Phase, Report, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    RetryAt(Time),
    Final,
}

impl TaskFailed {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        let (slot, task) = at.leased_in_time(state, self.task, self.fencing_token)?;
        if task.cancel.is_some() && self.next != NextStep::Final {
            return Err(at.invalid(format!("task {} is being cancelled and cannot wait again", self.task)));
        }
        let (outcome, phase) = match self.next {
            NextStep::RetryAt(time) => (
                Outcome::RetryAt(time),
                Phase::Waiting { since: at.position, not_before: Some(time), exhausted: false },
            ),
            NextStep::Final => (Outcome::Failed, Phase::Failed { at: at.time, ended: at.position }),
        };
        state.change(slot, at, |task| {
            task.add_report(Report {
                attempt: task.attempt,
                fencing_token: self.fencing_token,
                digest: self.digest,
                outcome,
            });
            task.last_error = Some(Box::new(self.error.clone()));
            task.note_details(self.details.as_ref());
            task.phase = phase;
        });
        Ok(())
    }
}
