//! Checks the order in which a queue's waiting tasks are leased: lower priority first, then the longest wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use authority::{Position, QueueKey, TaskId, TaskState, Time};

use super::model::TaskModel;
use super::{Auditor, ensure};

/// A task's place: its priority, the record that made it wait, and its id.
type Place = (i32, Position, TaskId);

/// The waiting tasks of every queue.
#[derive(Default)]
pub(crate) struct WaitingLines(BTreeMap<Arc<QueueKey>, BTreeSet<Place>>);

impl Auditor {
    /// Nobody who could have been leased instead stood before the task.
    pub(super) fn check_lease_order(&self, id: TaskId, at: Time) -> Result<(), String> {
        let Some(task) = self.tasks.get(&id) else { return Ok(()) };
        let (Some(since), Some(line)) = (task.waits_since, self.lines.0.get(&task.queue)) else {
            return Ok(());
        };
        // Who may lease a task depends on its properties, so only tasks with the same ones are compared.
        let could = |other: &TaskModel| {
            other.properties == task.properties
                && other.not_before.is_none_or(|time| time <= at)
                && other.deadline.is_none_or(|deadline| at < deadline)
        };
        let earlier = line
            .range(..(task.priority, since, id))
            .find(|(.., other)| self.tasks.get(other).is_some_and(could));
        let name = earlier.map(|(.., id)| id.to_string()).unwrap_or_default();
        ensure(earlier.is_none(), format!("task {name} stood before it in the queue"))
    }

    /// Puts a task into its line or takes it out, after the record at `position`.
    pub(super) fn update_waiting_line(&mut self, id: TaskId, position: Position) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let line = self.lines.0.entry(task.queue.clone()).or_default();
        let waits = task.state == TaskState::Waiting && !task.exhausted;
        match task.waits_since {
            None if waits => {
                let since = task.returns_to.take().unwrap_or(position);
                task.waits_since = Some(since);
                line.insert((task.priority, since, id));
            }
            Some(since) if !waits => {
                task.waits_since = None;
                line.remove(&(task.priority, since, id));
            }
            _ => {}
        }
    }
}
