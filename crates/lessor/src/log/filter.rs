//! Filters records by task, queue and type.

use std::collections::HashSet;

use authority::{Event, TaskId};

#[derive(Default)]
pub(super) struct Filter {
    pub task: Option<TaskId>,
    pub queue: Option<QueueTasks>,
    /// All when empty.
    pub types: Vec<String>,
}

/// The tasks of a queue, of whatever tenant. Only a task's first record names its queue, so this must see every
/// record from the first, also those that are not shown.
pub(super) struct QueueTasks {
    name: String,
    tasks: HashSet<TaskId>,
}

impl QueueTasks {
    pub(super) fn new(name: &str) -> QueueTasks {
        QueueTasks { name: name.to_owned(), tasks: HashSet::new() }
    }

    /// Adds a task if it is of this queue.
    pub(super) fn add_task(&mut self, queue: &str, task: TaskId) {
        if queue == self.name {
            self.tasks.insert(task);
        }
    }

    fn matches(&mut self, event: &Event) -> bool {
        match event {
            Event::TaskCreated(event) => {
                self.add_task(&event.queue.name, event.task);
                *event.queue.name == *self.name
            }
            Event::QueueConfigured(event) => *event.queue.name == *self.name,
            Event::TasksPurged(event) => {
                event.tasks.iter().filter(|task| self.tasks.remove(task)).count() > 0
            }
            other => other.task().is_some_and(|task| self.tasks.contains(&task)),
        }
    }
}

impl Filter {
    /// Whether the record is wanted. Must be called for every record, in order.
    pub(super) fn wants(&mut self, event: &Event) -> bool {
        let of_queue = self.queue.as_mut().is_none_or(|queue| queue.matches(event));
        let of_task = self.task.is_none_or(|task| match event {
            Event::TasksPurged(purged) => purged.tasks.contains(&task),
            other => other.task() == Some(task),
        });
        let of_type = self.types.is_empty() || self.types.iter().any(|name| *name == event.name());
        of_queue && of_task && of_type
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use authority::event::{OperationAttached, TaskCreated, TasksPurged};
    use authority::{QueueKey, Scope};

    use super::*;

    fn created(id: u128, queue: &str) -> Event {
        let scope = Scope { tenant: Arc::from("t"), workspace: Arc::from("w") };
        Event::TaskCreated(Box::new(TaskCreated {
            task: TaskId(id),
            queue: Arc::new(QueueKey { scope, name: Arc::from(queue) }),
            payload: Arc::from(*b"1"),
            priority: 0,
            not_before: None,
            properties: Arc::default(),
            options: None,
            operation: None,
            by: None,
        }))
    }

    fn touched(id: u128) -> Event {
        Event::OperationAttached(OperationAttached { task: TaskId(id), operation: Arc::from("o") })
    }

    #[test]
    fn a_queue_has_its_tasks_from_their_creation_to_their_purge() {
        let mut filter = Filter { queue: Some(QueueTasks::new("a")), ..Filter::default() };
        let purged = Event::TasksPurged(TasksPurged { tasks: vec![TaskId(1), TaskId(2)] });
        let events =
            [created(1, "a"), created(2, "b"), touched(1), touched(2), purged.clone(), purged, touched(1)];
        let wanted: Vec<_> = events.iter().map(|event| filter.wants(event)).collect();
        assert_eq!(wanted, [true, false, true, false, true, false, false]);
    }

    #[test]
    fn task_and_type_must_both_fit() {
        let types = vec!["TaskCreated".to_owned(), "TasksPurged".to_owned()];
        let mut filter = Filter { task: Some(TaskId(1)), types, queue: None };
        assert!(filter.wants(&created(1, "a")));
        assert!(!filter.wants(&created(2, "a")) && !filter.wants(&touched(1)));
        assert!(filter.wants(&Event::TasksPurged(TasksPurged { tasks: vec![TaskId(1)] })));
    }
}
