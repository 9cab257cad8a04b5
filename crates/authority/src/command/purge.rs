//! Forget final tasks past their retention, and under memory pressure the oldest ones early.

use super::Decision;
use crate::event::{Event, TasksPurged};
use crate::limits::{MAX_TICK_TASKS, MIN_RETENTION_MS};
use crate::{State, TaskId, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purge {
    /// Off while the clock is under suspicion of having jumped; memory pressure still purges.
    pub by_age: bool,
}

impl Purge {
    /// Answers whether there is more to forget.
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<bool> {
        let mut tasks: Vec<TaskId> = Vec::new();
        if self.by_age {
            tasks.extend(state.purgeable(now).take(MAX_TICK_TASKS));
        }
        if tasks.is_empty() {
            let limit = Time(now.0.saturating_sub(MIN_RETENTION_MS));
            let mut surplus = state.bytes().saturating_sub(state.max_bytes() / 4 * 3);
            for task in state.purgeable_early(limit).take(MAX_TICK_TASKS) {
                if surplus == 0 {
                    break;
                }
                surplus = surplus.saturating_sub(task.bytes());
                tasks.push(task.id);
            }
        }
        let more = tasks.len() == MAX_TICK_TASKS;
        if tasks.is_empty() {
            Decision::only(false)
        } else {
            Decision::with(Event::TasksPurged(TasksPurged { tasks }), more)
        }
    }
}
