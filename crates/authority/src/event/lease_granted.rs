//! Applies [`LeaseGranted`].

use super::{At, InvalidTransition, LeaseGranted};
use crate::rules;
use crate::state::State;
use crate::{Lease, Phase};

impl LeaseGranted {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        let slot = at.task(state, self.task)?;
        let task = state.task_at(slot);
        if !rules::may_be_granted(task) {
            return Err(at.invalid(format!("task {} is {:?}, not waiting", self.task, task.state())));
        }
        if matches!(task.phase, Phase::Waiting { exhausted: true, .. }) {
            return Err(at.invalid(format!("task {} has no attempt left", self.task)));
        }
        if !rules::is_next_attempt(task, self.attempt) {
            return Err(at.invalid(format!("attempt {} does not follow {}", self.attempt, task.attempt)));
        }
        let lease = Lease {
            fencing_token: at.position,
            worker: self.worker.clone(),
            session: self.session.clone(),
            request: self.request,
            granted_at: at.time,
            length_ms: self.length_ms,
            expires_at: self.expires_at,
            extended_at: at.time,
            started_by: None,
            contract: self.contract,
            since: task.waiting_since(),
        };
        state.change(slot, at, |task| {
            task.attempt += 1;
            task.phase = Phase::Leased(Box::new(lease));
        });
        Ok(())
    }
}
