//! The few ways in which an event changes the state. Each keeps every index in step with the tasks.

use std::sync::Arc;

use super::keys::{Eligibility, IndexKeys};
use super::queue_state::QueueState;
use super::{Owner, Slot, State, TokenKey};
use crate::event::At;
use crate::{Position, QueueConfig, QueueKey, Task};

/// The memory of a task, how much of it counts as a final task's, and whether the task counts as open.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub bytes: usize,
    pub final_bytes: usize,
    pub open_tasks: usize,
}

impl Size {
    fn of(task: &Task) -> Size {
        let bytes = task.bytes();
        if task.is_final() {
            Size { bytes, final_bytes: bytes, open_tasks: 0 }
        } else {
            Size { bytes, final_bytes: 0, open_tasks: 1 }
        }
    }
}

impl State {
    pub(crate) fn insert(&mut self, key: &Arc<QueueKey>, task: Task) {
        let queue_id = self.queue_id(key);
        let (id, created) = (task.id, task.created);
        if let Some(old) = task.options.as_ref().and_then(|options| options.redrive_of) {
            self.redrives.insert(old, id);
        }
        let slot = self.tasks.insert(task);
        if self.queue_by_slot.len() <= slot.0 as usize {
            self.queue_by_slot.resize(slot.0 as usize + 1, 0);
        }
        self.queue_by_slot[slot.0 as usize] = queue_id;
        self.ids.insert(id, slot);
        let queue = self.queues.get_mut(&queue_id).expect("the queue was just made");
        queue.created.insert((created, slot));
        queue.dedup_insert(&self.tasks, slot);
        self.resize(slot, Size::default(), Size::of(self.tasks.at(slot)));
        let keys = self.index_keys(slot);
        self.add_keys(slot, &keys);
    }

    pub(crate) fn change(&mut self, slot: Slot, at: At, change: impl FnOnce(&mut Task)) {
        let before = self.index_keys(slot);
        let task = self.tasks.at_mut(slot);
        let size = Size::of(task);
        change(task);
        task.last = at.position;
        let new_size = Size::of(task);
        self.resize(slot, size, new_size);
        let after = self.index_keys(slot);
        if before != after {
            self.remove_keys(slot, &before);
            self.add_keys(slot, &after);
        }
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        let keys = self.index_keys(slot);
        self.remove_keys(slot, &keys);
        self.resize(slot, Size::of(self.tasks.at(slot)), Size::default());
        let queue_id = self.queue_by_slot[slot.0 as usize];
        let queue = self.queues.get_mut(&queue_id).expect("every task has its queue");
        let task = self.tasks.at(slot);
        let id = task.id;
        if let Some(old) = task.options.as_ref().and_then(|options| options.redrive_of)
            && self.redrives.get(&old) == Some(&id)
        {
            self.redrives.remove(&old);
        }
        queue.created.remove(&(task.created, slot));
        queue.dedup_remove(&self.tasks, slot);
        self.ids.remove(id, slot);
        self.tasks.remove(slot);
        self.drop_if_unused(queue_id);
    }

    pub(crate) fn configure(&mut self, key: &Arc<QueueKey>, config: QueueConfig, position: Position) {
        let id = self.queue_id(key);
        let queue = self.queues.get_mut(&id).expect("the queue was just made");
        queue.settings = config.settings(&self.queue_defaults.of(&key.name));
        queue.config = config;
        queue.configured = Some(position);
    }

    pub(crate) fn set_owner(&mut self, epoch: u64, node: Arc<str>, since: Position) {
        self.owner = Some(Owner { epoch, node, since });
    }

    pub(crate) fn set_token_key(&mut self, id: Arc<str>, since: Position) {
        self.token_key = Some(TokenKey { id, since });
    }

    /// Counts the memory of a task that took `before` and takes `after`.
    fn resize(&mut self, slot: Slot, before: Size, after: Size) {
        if before == after {
            return;
        }
        self.bytes = self.bytes - before.bytes + after.bytes;
        self.final_bytes = self.final_bytes - before.final_bytes + after.final_bytes;
        let tenant = self.queue_at(slot).tenant;
        self.tenants.resize(tenant, before, after);
    }

    fn index_keys(&self, slot: Slot) -> IndexKeys {
        IndexKeys::of(slot, self.tasks.at(slot), self.ready_until)
    }

    fn add_keys(&mut self, slot: Slot, keys: &IndexKeys) {
        let queue =
            self.queues.get_mut(&self.queue_by_slot[slot.0 as usize]).expect("every task has its queue");
        *queue.count_mut(keys.state) += 1;
        match keys.eligibility {
            Eligibility::NotLeasable => {}
            Eligibility::Ready(entry) => queue.ready.insert(&self.tasks.at(slot).properties, entry),
            Eligibility::Delayed(time, _) => {
                queue.delayed += 1;
                self.delayed.insert((time, slot));
            }
        }
        if let Some(position) = keys.ended {
            // Events come in order, so the newest end goes to the back. Only a snapshot brings them unordered, and
            // `Restore::finish` sorts them; the records of its window end some tasks before others in it.
            let at = if self.position < self.window_end {
                queue.ended.partition_point(|ended| *ended < (position, slot))
            } else {
                queue.ended.len()
            };
            queue.ended.insert(at, (position, slot));
        }
        if let Some(due) = keys.due {
            self.due.insert((due, slot));
        }
        if let Some(worker) = &keys.worker {
            self.workers.insert((worker.clone(), slot));
        }
    }

    fn remove_keys(&mut self, slot: Slot, keys: &IndexKeys) {
        let queue =
            self.queues.get_mut(&self.queue_by_slot[slot.0 as usize]).expect("every task has its queue");
        *queue.count_mut(keys.state) -= 1;
        match keys.eligibility {
            Eligibility::NotLeasable => {}
            Eligibility::Ready(entry) => queue.ready.remove(&self.tasks.at(slot).properties, entry),
            Eligibility::Delayed(time, _) => {
                queue.delayed -= 1;
                self.delayed.remove(&(time, slot));
            }
        }
        if let Some(position) = keys.ended {
            match queue.ended.front() {
                Some(front) if *front == (position, slot) => drop(queue.ended.pop_front()),
                _ => {
                    if let Ok(at) = queue.ended.binary_search(&(position, slot)) {
                        queue.ended.remove(at);
                    }
                }
            }
        }
        if let Some(due) = keys.due {
            self.due.remove(&(due, slot));
        }
        if let Some(worker) = &keys.worker {
            self.workers.remove(&(worker.clone(), slot));
        }
    }

    fn queue_id(&mut self, key: &Arc<QueueKey>) -> u32 {
        if let Some(&id) = self.queue_ids.get(key) {
            return id;
        }
        let id = self.next_queue_id;
        self.next_queue_id += 1;
        self.queue_ids.insert(key.clone(), id);
        let tenant = self.tenants.add_queue(&key.scope.tenant);
        self.queues.insert(id, QueueState::new(key.clone(), tenant, &self.queue_defaults));
        id
    }

    fn drop_if_unused(&mut self, id: u32) {
        if self.queues.get(&id).is_some_and(QueueState::is_unused)
            && let Some(queue) = self.queues.remove(&id)
        {
            self.queue_ids.remove(&queue.key);
            self.tenants.remove_queue(&queue.key.scope.tenant);
        }
    }
}
