//! Applies [`TaskCreated`].

use super::{At, InvalidTransition, TaskCreated};
use crate::state::State;
use crate::{Phase, Task};

impl TaskCreated {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        if state.slot_of(self.task).is_some() {
            return Err(at.invalid(format!("task {} exists already", self.task)));
        }
        let task = Task {
            id: self.task,
            payload: self.payload.clone(),
            priority: self.priority,
            attempt: 0,
            releases: 0,
            created_at: at.time,
            created: at.position,
            last: at.position,
            phase: Phase::Waiting { since: at.position, not_before: self.not_before, exhausted: false },
            cancel: None,
            reports: Vec::new(),
            last_error: None,
            details: None,
            properties: self.properties.clone(),
            options: self.options.clone(),
            operations: self.operation.iter().cloned().collect(),
        };
        state.insert(&self.queue, task);
        Ok(())
    }
}
