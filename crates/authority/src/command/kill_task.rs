//! An operator ends a task at once, leased or not. Its worker's later report finds its authority gone.

use std::sync::Arc;

use super::verdict::{end_task, expire, killed};
use super::{Decision, EndAnswer};
use crate::{Actor, DeadReason, Scope, State, TaskId, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillTask {
    pub scope: Scope,
    pub task: TaskId,
    pub detail: Option<Arc<str>>,
    /// Who asks for it.
    pub by: Option<Arc<Actor>>,
}

impl KillTask {
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<EndAnswer> {
        let Some(slot) = state.find(&self.scope, self.task) else {
            return Decision::only(EndAnswer::UnknownTask);
        };
        let task = state.task_at(slot);
        if task.is_final() {
            return Decision::only(EndAnswer::Accepted);
        }
        let mut events = Vec::new();
        if task.lease().is_some_and(|lease| lease.is_over(now)) {
            events = expire(state, slot, now);
        }
        if !end_task(&events) {
            events.push(killed(task, DeadReason::Killed, self.detail.clone(), &self.by));
        }
        Decision { events, answer: EndAnswer::Accepted }
    }
}
