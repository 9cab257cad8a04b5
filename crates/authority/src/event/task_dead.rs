//! Applies [`TaskDead`].

use super::{At, InvalidTransition, TaskDead};
use crate::state::State;
use crate::{Outcome, Phase, Report};

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
                task.add_report(Report { attempt: task.attempt, fencing_token, digest, outcome });
                task.last_error = Some(Box::new(report.error.clone()));
                task.note_details(report.details.as_ref());
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
