//! The final tasks by age: which are past their retention, and which go first when memory is short.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::State;
use super::queue_state::QueueState;
use crate::rules;
use crate::{Task, TaskId, Time};

impl State {
    /// When the next final task reaches the end of its retention.
    pub fn next_purge(&self) -> Option<Time> {
        self.queues.values().filter_map(|queue| self.purge_time(queue)).min()
    }

    /// Final tasks past their retention, oldest first within a queue.
    pub(crate) fn purgeable(&self, now: Time) -> impl Iterator<Item = TaskId> {
        self.queues.values().flat_map(move |queue| {
            let retention_ms = queue.settings.retention_ms;
            let waiting = rules::purged_while_waiting(&queue.ready);
            self.ended_before(queue, move |at| at.plus_ms(retention_ms) <= now)
                .chain(waiting.map(|entry| self.tasks.at(entry.slot).id))
        })
    }

    /// Final tasks that ended before `limit`, the oldest first over all queues, whatever their retention.
    pub(crate) fn purgeable_early(&self, limit: Time) -> impl Iterator<Item = &Task> {
        // Each queue's tasks stand in the order of their end; a heap of the queues' next ones merges them.
        let fronts =
            self.queues.iter().filter_map(|(id, queue)| Some(Reverse((queue.ended.front()?.0, *id, 0))));
        let mut fronts: BinaryHeap<_> = fronts.collect();
        std::iter::from_fn(move || {
            let Reverse((_, id, at)) = fronts.pop()?;
            let ended = &self.queues[&id].ended;
            if let Some((position, _)) = ended.get(at + 1) {
                fronts.push(Reverse((*position, id, at + 1)));
            }
            ended.get(at).map(|(_, slot)| self.tasks.at(*slot))
        })
        .take_while(move |task| task.ended().is_some_and(|(at, _)| at < limit))
    }

    fn purge_time(&self, queue: &QueueState) -> Option<Time> {
        let (_, slot) = queue.ended.front()?;
        let (at, _) = self.tasks.at(*slot).ended()?;
        Some(at.plus_ms(queue.settings.retention_ms))
    }

    fn ended_before<'a>(
        &'a self,
        queue: &'a QueueState,
        is_old: impl Fn(Time) -> bool + 'a,
    ) -> impl Iterator<Item = TaskId> + 'a {
        queue
            .ended
            .iter()
            .map(|(_, slot)| self.tasks.at(*slot))
            .take_while(move |task| task.ended().is_some_and(|(at, _)| is_old(at)))
            .map(|task| task.id)
    }
}
