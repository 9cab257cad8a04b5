//! Policy or an operator ended the task. A report that led to it is kept with it.

use std::sync::Arc;

use super::{At, InvalidTransition};
use crate::state::State;
use crate::{DeadReason, Digest, Outcome, Phase, Position, Report, TaskError, TaskId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskDead {
    pub task: TaskId,
    pub reason: DeadReason,
    /// In the words of whoever asked for it.
    pub detail: Option<Arc<str>>,
    pub report: Option<DeadReport>,
}

/// The report of a cancelled attempt, accepted with the end of the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadReport {
    pub fencing_token: Position,
    pub digest: Digest,
    pub error: TaskError,
}

impl TaskDead {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        let slot = match &self.report {
            Some(report) => at.leased_in_time(state, self.task, report.fencing_token)?.0,
            None => at.task(state, self.task)?,
        };
        if state.task_at(slot).is_final() {
            return Err(at.invalid(format!("task {} is final already", self.task)));
        }
        state.change(slot, at, |task| {
            if let Some(report) = &self.report {
                let outcome = Outcome::Dead(self.reason);
                let (fencing_token, digest) = (report.fencing_token, report.digest);
                task.reports.push(Report { attempt: task.attempt, fencing_token, digest, outcome });
                task.last_error = Some(Box::new(report.error.clone()));
            }
            task.phase = Phase::Dead {
                at: at.time,
                ended: at.position,
                reason: self.reason,
                detail: self.detail.clone(),
            };
        });
        Ok(())
    }
}
