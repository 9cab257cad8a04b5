//! A worker begins a new session: what its earlier sessions held is given back at once.

use std::sync::Arc;

use super::Decision;
use super::release_lease::release;
use super::verdict::expire;
use crate::event::ReleaseCause;
use crate::limits::MAX_TICK_TASKS;
use crate::{State, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartSession {
    pub tenant: Arc<str>,
    pub worker: Arc<str>,
    pub session: Arc<str>,
}

impl StartSession {
    /// Answers whether there is more to give back.
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<bool> {
        let mut events = Vec::new();
        for slot in state.leases_of(&self.tenant, &self.worker) {
            let task = state.task_at(slot);
            let Some(lease) = task.lease() else { continue };
            // A lease without a session came through a contract that has none, and is not this agent's to give back.
            if lease.session.as_ref().is_none_or(|session| *session == self.session) {
                continue;
            }
            if events.len() >= MAX_TICK_TASKS {
                return Decision { events, answer: true };
            }
            if lease.is_over(now) {
                events.extend(expire(state, slot, now));
            } else {
                events.push(release(task, ReleaseCause::Session).0);
            }
        }
        Decision { events, answer: false }
    }
}
