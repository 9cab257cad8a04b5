//! Time has passed: leases expire, deadlines and grace periods end. A tick is a hint; every other command checks
//! the time itself, so a late tick delays an expiry and breaks no rule.

use std::sync::Arc;

use super::Decision;
use super::lease_tasks::past_deadline;
use super::verdict::{attempts_lost, dead, expire};
use crate::event::{CancelRequested, Event, ExpiryCause};
use crate::limits::MAX_TICK_TASKS;
use crate::state::Slot;
use crate::{CancelCause, DeadReason, Phase, State, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick;

impl Tick {
    /// Answers whether more tasks are due.
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<bool> {
        let mut events = Vec::new();
        let mut due = state.due(now);
        for slot in due.by_ref().take(MAX_TICK_TASKS) {
            decide_due_task(state, slot, now, &mut events);
        }
        let more = due.next().is_some();
        Decision { events, answer: more }
    }
}

fn decide_due_task(state: &State, slot: Slot, now: Time, events: &mut Vec<Event>) {
    let task = state.task_at(slot);
    match &task.phase {
        Phase::Waiting { exhausted: true, .. } => events.push(attempts_lost(task, ExpiryCause::Silence)),
        Phase::Waiting { .. } => events.push(past_deadline(task)),
        Phase::Leased(lease) if lease.is_over(now) => events.extend(expire(state, slot, now)),
        Phase::Leased(_) => match &task.cancel {
            Some(cancel) if now < cancel.grace_until => {}
            Some(cancel) => {
                events.push(dead(task, DeadReason::CancelTimeout, Some(cancel.reason.clone())));
            }
            // At the end of time a lease is due that can no longer pass.
            None if task.deadline().is_none_or(|deadline| now < deadline) => {}
            None => events.push(Event::CancelRequested(CancelRequested {
                task: task.id,
                cause: CancelCause::Deadline,
                reason: Arc::from("deadline"),
                grace_until: now.plus_ms(state.queue_at(slot).settings.cancel_grace_ms),
                by: None,
            })),
        },
        Phase::Completed { .. } | Phase::Failed { .. } | Phase::Dead { .. } => {}
    }
}
