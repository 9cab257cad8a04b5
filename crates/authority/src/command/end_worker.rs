//! A worker was lost: the leases that it holds through the scheduler's calls and stream end before their time. Leases of
//! other contracts live by their own clock.

use std::sync::Arc;

use super::Decision;
use super::verdict::{expire, lose_worker};
use crate::limits::MAX_TICK_TASKS;
use crate::rules;
use crate::{State, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndWorker {
    pub tenant: Arc<str>,
    pub worker: Arc<str>,
}

impl EndWorker {
    /// Answers whether the worker holds more.
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<bool> {
        let mut events = Vec::new();
        for slot in state.leases_of(&self.tenant, &self.worker) {
            let Some(lease) = state.task_at(slot).lease() else { continue };
            if !rules::ends_with_worker(lease) {
                continue;
            }
            if events.len() >= MAX_TICK_TASKS {
                return Decision { events, answer: true };
            }
            let over = if lease.is_over(now) { expire } else { lose_worker };
            events.extend(over(state, slot, now));
        }
        Decision { events, answer: false }
    }
}
