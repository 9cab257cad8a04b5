//! An operator ends a task at once, leased or not. Its worker's later report finds its authority gone.

use std::sync::Arc;

use super::verdict::expire;
use super::{Decision, EndAnswer};
use crate::event::{Event, TaskDead};
use crate::{DeadReason, Scope, State, TaskId, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillTask {
    pub scope: Scope,
    pub task: TaskId,
    pub detail: Option<Arc<str>>,
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
        if !events.iter().any(|event| matches!(event, Event::TaskDead(_))) {
            let (reason, detail) = (DeadReason::Killed, self.detail.clone());
            events.push(Event::TaskDead(TaskDead { task: task.id, reason, detail, report: None }));
        }
        Decision { events, answer: EndAnswer::Accepted }
    }
}
