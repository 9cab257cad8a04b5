//! The entries that the streams should have: one for each task that waits or is leased, built from the state of a start and the
//! records after it; and the changes that were not sent yet.
//!
//! A change that is undone before it is sent is not sent. So the changes of a stream are never more than its open tasks and
//! its published entries, however long Redis is away.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use authority::event::NextStep;
use authority::{Event, Phase, Position, QueueKey, State, Task, TaskId, Time};
use coordinator::{HistoryReader, HistoryRecord};

use super::names;
use crate::convert::last_wait;

/// The most changes of one stream that are sent at once.
pub(super) const MAX_CHANGES: usize = 512;

/// The number of a queue in the index.
pub(super) type QueueNumber = usize;

/// One entry of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    /// The record that made the task wait.
    pub position: u64,
    pub task: TaskId,
    /// 0 if the task may be leased at once.
    pub not_before_ms: u64,
}

/// Changes of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub removes: Vec<u64>,
    pub adds: Vec<Envelope>,
}

/// What is to be done for a queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The entries in Redis are not known: compare them with those of the index.
    Reconcile,
    Send(Changes),
}

#[derive(Default)]
pub(super) struct Index {
    queues: Vec<Queue>,
    by_key: HashMap<Arc<QueueKey>, QueueNumber>,
    by_name: HashMap<Arc<str>, QueueNumber>,
    open: HashMap<TaskId, (QueueNumber, u64)>,
    /// The entries that are delayed, by the time at which they are due.
    delayed: BTreeSet<(u64, QueueNumber, u64)>,
    /// The queues with work.
    dirty: BTreeSet<QueueNumber>,
    position: Position,
    /// Of the owner whose records these are.
    epoch: u64,
}

struct Queue {
    name: Arc<str>,
    entries: BTreeMap<u64, (TaskId, u64)>,
    /// Whether the entries in Redis are known, so that changes are enough.
    is_known: bool,
    adds: BTreeSet<u64>,
    removes: BTreeSet<u64>,
}

impl Index {
    /// Takes the open tasks of a state. A task's history is read only where the state does not say which record made the task
    /// wait.
    pub(super) fn begin(&mut self, state: &State, history: &dyn HistoryReader) {
        let epoch = state.owner().map_or(0, |owner| owner.epoch);
        *self = Index { position: state.position(), epoch, ..Index::default() };
        for slot in 0..state.slots() {
            let Some((queue, task)) = state.in_slot(slot) else { continue };
            let Some((position, not_before)) = waiting_record(task, history) else { continue };
            let queue = self.queue(queue);
            self.insert(queue, task.id, position, not_before, state.time());
        }
    }

    pub(super) fn apply(&mut self, record: &HistoryRecord) {
        self.position = record.position;
        let (at, position) = (record.at, record.position);
        match &record.event {
            Event::TaskCreated(created) => {
                let queue = self.queue(&created.queue);
                self.insert(queue, created.task, position, created.not_before, at);
            }
            Event::LeaseExpired(expired) => {
                let queue = self.remove(expired.task);
                // Without an attempt left the task is dead in the same batch.
                if let Some(queue) = queue.filter(|_| !expired.exhausted) {
                    self.insert(queue, expired.task, position, None, at);
                }
            }
            Event::LeaseReleased(released) => {
                if let Some(queue) = self.remove(released.task) {
                    self.insert(queue, released.task, position, None, at);
                }
            }
            Event::TaskFailed(failed) => {
                let queue = self.remove(failed.task);
                if let (Some(queue), NextStep::RetryAt(time)) = (queue, failed.next) {
                    self.insert(queue, failed.task, position, Some(time), at);
                }
            }
            Event::TaskCompleted(completed) => drop(self.remove(completed.task)),
            Event::TaskDead(dead) => drop(self.remove(dead.task)),
            Event::OwnerTookOver(owner) => self.epoch = owner.epoch,
            _ => {}
        }
    }

    pub(super) fn position(&self) -> Position {
        self.position
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn len(&self) -> usize {
        self.queues.len()
    }

    pub(super) fn name(&self, queue: QueueNumber) -> Arc<str> {
        self.queues[queue].name.clone()
    }

    pub(super) fn is_known(&self, queue: QueueNumber) -> bool {
        self.queues[queue].is_known
    }

    pub(super) fn has_work(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The changes that were not sent yet.
    pub(super) fn pending(&self) -> usize {
        self.dirty.iter().map(|&queue| self.queues[queue].adds.len() + self.queues[queue].removes.len()).sum()
    }

    /// Adds a queue that has no open task, because Redis has a stream of this name.
    pub(super) fn add_named(&mut self, name: &str) {
        if !self.by_name.contains_key(name) {
            self.new_queue(name.into());
        }
    }

    /// The work of up to so many queues. What is returned is no longer pending.
    pub(super) fn take_work(&mut self, max_queues: usize) -> Vec<(QueueNumber, Work)> {
        let mut work = Vec::new();
        while work.len() < max_queues
            && let Some(number) = self.dirty.pop_first()
        {
            let queue = &mut self.queues[number];
            if !queue.is_known {
                work.push((number, Work::Reconcile));
                continue;
            }
            let mut changes = Changes::default();
            while changes.removes.len() < MAX_CHANGES
                && let Some(position) = queue.removes.pop_first()
            {
                changes.removes.push(position);
            }
            while changes.removes.len() + changes.adds.len() < MAX_CHANGES
                && let Some(position) = queue.adds.pop_first()
            {
                changes.adds.extend(queue.envelope(position));
            }
            if !changes.removes.is_empty() || !changes.adds.is_empty() {
                work.push((number, Work::Send(changes)));
            }
        }
        // A queue with more changes than fit comes again.
        for (number, _) in &work {
            let queue = &self.queues[*number];
            if !queue.adds.is_empty() || !queue.removes.is_empty() {
                self.dirty.insert(*number);
            }
        }
        work
    }

    /// Changes that were not applied are pending again.
    pub(super) fn put_back(&mut self, number: QueueNumber, changes: Changes) {
        let queue = &mut self.queues[number];
        for envelope in changes.adds {
            // Meanwhile removed again: then neither is sent.
            if !queue.removes.remove(&envelope.position) {
                queue.adds.insert(envelope.position);
            }
        }
        queue.removes.extend(changes.removes);
        self.dirty.insert(number);
    }

    /// All entries that a stream should have, oldest first. From here on its changes are collected.
    pub(super) fn snapshot(&mut self, number: QueueNumber) -> Vec<Envelope> {
        let queue = &mut self.queues[number];
        queue.is_known = true;
        queue.adds.clear();
        queue.removes.clear();
        queue.entries.keys().filter_map(|&position| queue.envelope(position)).collect()
    }

    /// The entries of a stream in Redis are not known any more; it must be reconciled.
    pub(super) fn forget(&mut self, number: QueueNumber) {
        self.set_aside(number);
        self.dirty.insert(number);
    }

    /// The same, but the stream is reconciled only with its next record, or when it is forgotten.
    pub(super) fn set_aside(&mut self, number: QueueNumber) {
        let queue = &mut self.queues[number];
        queue.is_known = false;
        queue.adds.clear();
        queue.removes.clear();
    }

    /// The next time at which a delayed task is due.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.delayed.first().map(|(due, ..)| Time(*due))
    }

    /// The delayed entries that are due, each returned once.
    pub(super) fn take_due(&mut self, now: Time, max: usize) -> Vec<(Arc<str>, u64)> {
        let mut due = Vec::new();
        while due.len() < max
            && let Some(&(time, queue, position)) = self.delayed.first()
            && time <= now.0
        {
            self.delayed.pop_first();
            due.push((self.queues[queue].name.clone(), position));
        }
        due
    }

    fn queue(&mut self, key: &Arc<QueueKey>) -> QueueNumber {
        if let Some(&number) = self.by_key.get(key) {
            return number;
        }
        let name = names::stream(key);
        let number = self.by_name.get(&name).copied().unwrap_or_else(|| self.new_queue(name));
        self.by_key.insert(key.clone(), number);
        number
    }

    fn new_queue(&mut self, name: Arc<str>) -> QueueNumber {
        let number = self.queues.len();
        self.by_name.insert(name.clone(), number);
        let (entries, adds, removes) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        self.queues.push(Queue { name, entries, is_known: false, adds, removes });
        self.dirty.insert(number);
        number
    }

    fn insert(
        &mut self,
        number: QueueNumber,
        task: TaskId,
        position: Position,
        not_before: Option<Time>,
        now: Time,
    ) {
        let not_before_ms = not_before.map_or(0, |time| time.0);
        let queue = &mut self.queues[number];
        queue.entries.insert(position.0, (task, not_before_ms));
        if queue.is_known {
            queue.adds.insert(position.0);
        }
        if not_before_ms > now.0 {
            self.delayed.insert((not_before_ms, number, position.0));
        }
        self.open.insert(task, (number, position.0));
        self.dirty.insert(number);
    }

    fn remove(&mut self, task: TaskId) -> Option<QueueNumber> {
        let (number, position) = self.open.remove(&task)?;
        let queue = &mut self.queues[number];
        if let Some((_, not_before_ms)) = queue.entries.remove(&position) {
            self.delayed.remove(&(not_before_ms, number, position));
        }
        if queue.is_known && !queue.adds.remove(&position) {
            queue.removes.insert(position);
        }
        self.dirty.insert(number);
        Some(number)
    }
}

impl Queue {
    fn envelope(&self, position: u64) -> Option<Envelope> {
        let &(task, not_before_ms) = self.entries.get(&position)?;
        Some(Envelope { position, task, not_before_ms })
    }
}

/// The record that made an open task wait, as claims name it, and until when the task is delayed.
fn waiting_record(task: &Task, history: &dyn HistoryReader) -> Option<(Position, Option<Time>)> {
    let read = |before: Position| {
        let history = history.history(task.last).ok()?;
        last_wait(&history.records, before)
    };
    match &task.phase {
        Phase::Waiting { exhausted: true, .. } => None,
        Phase::Waiting { since, not_before, .. } => {
            // A task that kept its place in the queue waits since an earlier record than the one that made it wait.
            let is_recorded = task.attempt == 0 || *since == task.last;
            let position = if is_recorded { None } else { read(Position(u64::MAX)) };
            Some((position.unwrap_or(*since), *not_before))
        }
        Phase::Leased(_) if task.attempt == 1 => Some((task.created, None)),
        Phase::Leased(lease) => {
            let position = read(lease.fencing_token).or(lease.since);
            Some((position.unwrap_or(task.created), None))
        }
        Phase::Completed { .. } | Phase::Failed { .. } | Phase::Dead { .. } => None,
    }
}

#[cfg(test)]
mod tests;
