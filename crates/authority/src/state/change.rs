//! The few ways in which an event changes the state. Each keeps every index in step with the tasks.

use std::sync::Arc;

use super::keys::{Keys, Place};
use super::line::Line;
use super::{Owner, Slot, State, TokenKey};
use crate::event::At;
use crate::{Position, QueueConfig, QueueKey, Task};

impl State {
    pub(crate) fn insert(&mut self, key: &Arc<QueueKey>, task: Task) {
        let line_id = self.line_id(key);
        let (id, created) = (task.id, task.created);
        if let Some(old) = task.extras.as_ref().and_then(|extras| extras.redrive_of) {
            self.redrives.insert(old, id);
        }
        let slot = self.tasks.insert(task);
        if self.line_of.len() <= slot.0 as usize {
            self.line_of.resize(slot.0 as usize + 1, 0);
        }
        self.line_of[slot.0 as usize] = line_id;
        self.ids.insert(id, slot);
        let line = self.lines.get_mut(&line_id).expect("the line was just made");
        line.created.insert((created, slot));
        line.dedup_insert(&self.tasks, slot);
        let task = self.tasks.at(slot);
        self.bytes += task.bytes();
        let keys = Keys::of(slot, task, self.ready_until);
        self.add_keys(slot, &keys);
    }

    pub(crate) fn change(&mut self, slot: Slot, at: At, change: impl FnOnce(&mut Task)) {
        let before = self.keys(slot);
        let task = self.tasks.at_mut(slot);
        self.bytes -= task.bytes();
        change(task);
        task.last = at.position;
        self.bytes += task.bytes();
        let after = self.keys(slot);
        if before != after {
            self.remove_keys(slot, &before);
            self.add_keys(slot, &after);
        }
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        let keys = self.keys(slot);
        self.remove_keys(slot, &keys);
        let line_id = self.line_of[slot.0 as usize];
        let line = self.lines.get_mut(&line_id).expect("every task has its line");
        let task = self.tasks.at(slot);
        let id = task.id;
        self.bytes -= task.bytes();
        if let Some(old) = task.extras.as_ref().and_then(|extras| extras.redrive_of)
            && self.redrives.get(&old) == Some(&id)
        {
            self.redrives.remove(&old);
        }
        line.created.remove(&(task.created, slot));
        line.dedup_remove(&self.tasks, slot);
        self.ids.remove(id, slot);
        self.tasks.remove(slot);
        self.drop_if_unused(line_id);
    }

    pub(crate) fn configure(&mut self, key: &Arc<QueueKey>, config: QueueConfig, position: Position) {
        let id = self.line_id(key);
        let line = self.lines.get_mut(&id).expect("the line was just made");
        line.settings = config.settings(&key.name);
        line.config = config;
        line.configured = Some(position);
    }

    pub(crate) fn set_owner(&mut self, epoch: u64, node: Arc<str>, since: Position) {
        self.owner = Some(Owner { epoch, node, since });
    }

    pub(crate) fn set_token_key(&mut self, id: Arc<str>, since: Position) {
        self.token_key = Some(TokenKey { id, since });
    }

    fn keys(&self, slot: Slot) -> Keys {
        Keys::of(slot, self.tasks.at(slot), self.ready_until)
    }

    fn add_keys(&mut self, slot: Slot, keys: &Keys) {
        let line = self.lines.get_mut(&self.line_of[slot.0 as usize]).expect("every task has its line");
        *line.count_mut(keys.state) += 1;
        match keys.place {
            Place::Nowhere => {}
            Place::Ready(turn) => line.ready.insert(&self.tasks.at(slot).properties, turn),
            Place::Delayed(time, _) => {
                line.delayed += 1;
                self.delayed.insert((time, slot));
            }
        }
        if let Some(position) = keys.ended {
            // Events come in order, so the newest end goes to the back. Only a snapshot brings them unordered, and
            // `Restore::finish` sorts them; the records of its window end some tasks before others in it.
            let at = match self.position < self.window_end {
                true => line.ended.partition_point(|ended| *ended < (position, slot)),
                false => line.ended.len(),
            };
            line.ended.insert(at, (position, slot));
        }
        if let Some(due) = keys.due {
            self.due.insert((due, slot));
        }
        if let Some(worker) = &keys.worker {
            self.workers.insert((worker.clone(), slot));
        }
    }

    fn remove_keys(&mut self, slot: Slot, keys: &Keys) {
        let line = self.lines.get_mut(&self.line_of[slot.0 as usize]).expect("every task has its line");
        *line.count_mut(keys.state) -= 1;
        match keys.place {
            Place::Nowhere => {}
            Place::Ready(turn) => line.ready.remove(&self.tasks.at(slot).properties, turn),
            Place::Delayed(time, _) => {
                line.delayed -= 1;
                self.delayed.remove(&(time, slot));
            }
        }
        if let Some(position) = keys.ended {
            match line.ended.front() {
                Some(front) if *front == (position, slot) => drop(line.ended.pop_front()),
                _ => {
                    if let Ok(at) = line.ended.binary_search(&(position, slot)) {
                        line.ended.remove(at);
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

    fn line_id(&mut self, key: &Arc<QueueKey>) -> u32 {
        if let Some(&id) = self.line_ids.get(key) {
            return id;
        }
        let id = self.next_line;
        self.next_line += 1;
        self.line_ids.insert(key.clone(), id);
        self.lines.insert(id, Line::new(key.clone()));
        id
    }

    fn drop_if_unused(&mut self, id: u32) {
        if self.lines.get(&id).is_some_and(Line::is_unused)
            && let Some(line) = self.lines.remove(&id)
        {
            self.line_ids.remove(&line.key);
        }
    }
}
