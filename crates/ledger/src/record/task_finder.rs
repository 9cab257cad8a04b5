//! A search for the records that may name a task, without decoding them.

use authority::TaskId;
use memchr::memmem::Finder;

/// Finds the random half of a task's id in the bytes of records. A record that has it may still be about another task.
pub struct TaskFinder(Finder<'static>);

impl TaskFinder {
    pub fn new(task: TaskId) -> TaskFinder {
        TaskFinder(Finder::new(&(task.0 as u64).to_le_bytes()).into_owned())
    }

    pub fn may_name_task(&self, record: &[u8]) -> bool {
        self.0.find(record).is_some()
    }
}

#[cfg(test)]
mod tests {
    use authority::event::{OperationAttached, TasksPurged};
    use authority::{Event, Time};

    use super::*;
    use crate::record::encode;

    #[test]
    fn a_record_of_the_task_and_its_purge_are_found_and_others_are_not() {
        let (task, other) = (TaskId(0x0190_0000_0000_7000_8000_1234_5678_9abc), TaskId(7 << 70 | 9));
        let finder = TaskFinder::new(task);
        let named = |event: Event| {
            let mut bytes = Vec::new();
            encode(Time(5), None, &event, &mut bytes);
            finder.may_name_task(&bytes)
        };
        let attached = |task| Event::OperationAttached(OperationAttached { task, operation: "o".into() });
        assert!(named(attached(task)) && !named(attached(other)));
        assert!(named(Event::TasksPurged(TasksPurged { tasks: vec![other, task] })));
        assert!(!named(Event::TasksPurged(TasksPurged { tasks: vec![other] })));
    }
}
