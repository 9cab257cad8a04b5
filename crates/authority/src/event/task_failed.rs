//! A worker with authority reported that its attempt failed. The event says what follows; replay runs no policy.

use super::{At, InvalidTransition};
use crate::state::State;
use crate::{Digest, Outcome, Phase, Position, Report, TaskError, TaskId, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFailed {
    pub task: TaskId,
    pub fencing_token: Position,
    pub digest: Digest,
    pub error: TaskError,
    pub next: NextStep,
}

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
            task.reports.push(Report {
                attempt: task.attempt,
                fencing_token: self.fencing_token,
                digest: self.digest,
                outcome,
            });
            task.last_error = Some(Box::new(self.error.clone()));
            task.phase = phase;
        });
        Ok(())
    }
}
