//! Someone wants a task to stop: a waiting one ends at once, a leased one is asked to. Asking again is harmless.

use std::sync::Arc;

use super::Decision;
use super::verdict::{end_task, expire, killed};
use crate::event::{CancelRequested, Event};
use crate::rules;
use crate::{Actor, CancelCause, DeadReason, Phase, Scope, State, TaskId, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelTask {
    pub scope: Scope,
    pub task: TaskId,
    pub reason: Arc<str>,
    /// Who asks for it.
    pub by: Option<Arc<Actor>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndAnswer {
    /// The request is recorded, or was before, or the task had ended anyway.
    Accepted,
    UnknownTask,
}

impl CancelTask {
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<EndAnswer> {
        let Some(slot) = state.find(&self.scope, self.task) else {
            return Decision::only(EndAnswer::UnknownTask);
        };
        let task = state.task_at(slot);
        let dead = || killed(task, DeadReason::Cancelled, Some(self.reason.clone()), &self.by);
        let events = match &task.phase {
            Phase::Waiting { .. } => vec![dead()],
            Phase::Leased(lease) if lease.is_over(now) => {
                let mut events = expire(state, slot, now);
                if !end_task(&events) {
                    events.push(dead());
                }
                events
            }
            Phase::Leased(_) if rules::is_new_cancel(task) => {
                let grace_until = now.plus_ms(state.queue_at(slot).settings.cancel_grace_ms);
                let (cause, reason, by) = (CancelCause::User, self.reason.clone(), self.by.clone());
                let stop = CancelRequested { task: task.id, cause, reason, grace_until, by };
                vec![Event::CancelRequested(stop)]
            }
            _ => Vec::new(),
        };
        Decision { events, answer: EndAnswer::Accepted }
    }
}
