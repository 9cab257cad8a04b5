//! A task was accepted: it waits, with no attempt made.

use std::sync::Arc;

use super::{At, Illegal};
use crate::state::State;
use crate::{Extras, Phase, Properties, QueueKey, Task, TaskId, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCreated {
    pub task: TaskId,
    pub queue: Arc<QueueKey>,
    pub payload: Arc<[u8]>,
    pub priority: i32,
    pub not_before: Option<Time>,
    pub properties: Arc<Properties>,
    pub extras: Option<Arc<Extras>>,
    /// The first waiter of an execution.
    pub operation: Option<Arc<str>>,
}

impl TaskCreated {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), Illegal> {
        if state.slot_of(self.task).is_some() {
            return Err(at.illegal(format!("task {} exists already", self.task)));
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
            extras: self.extras.clone(),
            operations: self.operation.iter().cloned().collect(),
        };
        state.insert(&self.queue, task);
        Ok(())
    }
}
