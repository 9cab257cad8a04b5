//! A task was accepted: it waits, with no attempt made.

use std::sync::Arc;

use super::{At, InvalidTransition};
use crate::state::State;
use crate::{Phase, Properties, QueueKey, Task, TaskId, TaskOptions, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCreated {
    pub task: TaskId,
    pub queue: Arc<QueueKey>,
    pub payload: Arc<[u8]>,
    pub priority: i32,
    pub not_before: Option<Time>,
    pub properties: Arc<Properties>,
    pub options: Option<Arc<TaskOptions>>,
    /// The first waiter of an execution.
    pub operation: Option<Arc<str>>,
}

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
            properties: self.properties.clone(),
            options: self.options.clone(),
            operations: self.operation.iter().cloned().collect(),
        };
        state.insert(&self.queue, task);
        Ok(())
    }
}
