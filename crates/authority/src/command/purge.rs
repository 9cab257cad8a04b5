//! Forget final tasks past their retention, and the oldest ones early when they take too much memory.

use std::collections::HashSet;

use super::Decision;
use crate::event::{Event, TasksPurged};
use crate::limits::{MAX_TICK_TASKS, MIN_FINAL_MS, MIN_RETENTION_MS};
use crate::{State, Task, TaskId, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purge {
    /// Off while the clock is under suspicion of having jumped; a lack of memory still purges.
    pub by_age: bool,
}

impl Purge {
    /// Answers whether there is more to forget.
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<bool> {
        let mut tasks: Vec<TaskId> = Vec::new();
        if self.by_age {
            tasks.extend(state.purgeable(now).take(MAX_TICK_TASKS));
        }
        add_early(state, now, &mut tasks);
        let more = tasks.len() == MAX_TICK_TASKS;
        if tasks.is_empty() {
            Decision::only(false)
        } else {
            Decision::with(Event::TasksPurged(TasksPurged { tasks }), more)
        }
    }
}

/// Adds the oldest final tasks, as many as must go: final tasks exceed their limit, or all tasks come near theirs. Also when
/// others go by age, or a queue with a short retention would keep all memory from being freed.
fn add_early(state: &State, now: Time, tasks: &mut Vec<TaskId>) {
    let by_age = HashSet::<TaskId>::from_iter(tasks.iter().copied());
    let freed: usize = tasks.iter().filter_map(|id| state.task(*id)).map(Task::bytes).sum();
    let ended_before = |ms| Time(now.0.saturating_sub(ms));
    let mut final_surplus = state.final_bytes().saturating_sub(state.max_final_bytes().saturating_add(freed));
    let mut surplus = state.bytes().saturating_sub((state.max_bytes() / 4 * 3).saturating_add(freed));
    if final_surplus == 0 && surplus == 0 {
        return;
    }
    let candidates =
        state.purgeable_early(ended_before(MIN_FINAL_MS)).filter(|task| !by_age.contains(&task.id));
    for task in candidates.take(MAX_TICK_TASKS - by_age.len()) {
        let is_old = task.ended().is_some_and(|(at, _)| at < ended_before(MIN_RETENTION_MS));
        if final_surplus == 0 && (surplus == 0 || !is_old) {
            break;
        }
        final_surplus = final_surplus.saturating_sub(task.bytes());
        surplus = surplus.saturating_sub(task.bytes());
        tasks.push(task.id);
    }
}
