//! A state from a snapshot that was taken in slices while records went on being applied.
//!
//! Each task was stored as it stood at some moment between the snapshot's begin and its end, with its last
//! position. Records after the begin are applied again: what a task has seen already is skipped, and so are
//! records about tasks that were purged before their slice was taken.

use std::sync::Arc;

use super::{Owner, State, StoredKey, TokenKey};
use crate::event::{At, Event, InvalidTransition, TasksPurged};
use crate::rules;
use crate::{Position, QueueConfig, QueueKey, Task, TaskId, Time};

pub struct Restore {
    state: State,
}

impl Restore {
    /// Begins with nothing. `begin` and `time` are the state's position and time when the snapshot was begun.
    pub fn new(begin: Position, time: Time) -> Restore {
        Restore { state: State { position: begin, time, ..State::default() } }
    }

    pub fn task(&mut self, queue: &Arc<QueueKey>, task: Task) -> Result<(), InvalidTransition> {
        if self.state.slot_of(task.id).is_some() {
            return Err(InvalidTransition {
                position: task.last,
                what: format!("task {} is in the snapshot twice", task.id),
            });
        }
        self.state.insert(queue, task);
        Ok(())
    }

    pub fn queue(&mut self, key: &Arc<QueueKey>, config: QueueConfig, configured: Position) {
        self.state.configure(key, rules::restored_config(config), configured);
    }

    pub fn owner(&mut self, owner: Owner) {
        self.state.owner = Some(owner);
    }

    pub fn token_key(&mut self, key: TokenKey) {
        self.state.token_key = Some(key);
    }

    pub fn key(&mut self, key: StoredKey) -> Result<(), InvalidTransition> {
        if self.state.key(&key.key.id).is_some() {
            let what = format!("key {} is in the snapshot twice", key.key.id);
            return Err(InvalidTransition { position: key.since, what });
        }
        self.state.insert_key(key);
        Ok(())
    }

    /// The state, ready for the records after `begin`. Until `end` they may be part of it already.
    pub fn finish(mut self, end: Position) -> State {
        for queue in self.state.queues.values_mut() {
            queue.ended.make_contiguous().sort_unstable();
        }
        if !rules::restores_timers() {
            self.state.due.clear();
        }
        self.state.window_end = end;
        self.state
    }
}

impl State {
    /// How many slots a snapshot has to visit.
    pub fn slots(&self) -> u32 {
        self.tasks.end().0
    }

    /// The task in a slot, with its queue, if there is one.
    pub fn in_slot(&self, slot: u32) -> Option<(&Arc<QueueKey>, &Task)> {
        let slot = super::Slot(slot);
        self.tasks.get(slot).map(|task| (&self.queue_at(slot).key, task))
    }

    /// The queues that were configured, by name.
    pub fn configured_queues(&self) -> impl Iterator<Item = (&Arc<QueueKey>, &QueueConfig, Position)> {
        self.queue_ids.iter().filter_map(|(key, id)| {
            let queue = &self.queues[id];
            queue.configured.map(|position| (key, &queue.config, position))
        })
    }

    pub(super) fn apply_in_window(&mut self, event: &Event, at: At) -> Result<(), InvalidTransition> {
        let seen = match event {
            Event::TasksPurged(purged) => {
                // A task with a later record was created again after it was purged.
                let older = |id: &TaskId| self.task(*id).is_some_and(|task| task.last < at.position);
                let tasks = purged.tasks.iter().copied().filter(older).collect();
                return Event::TasksPurged(TasksPurged { tasks }).apply(self, at);
            }
            Event::QueueConfigured(event) => {
                self.queue_by_key(&event.queue).and_then(|queue| queue.configured)
            }
            Event::TokenKeyRotated(_) => self.token_key.as_ref().map(|key| key.since),
            Event::OwnerTookOver(_) => self.owner.as_ref().map(|owner| owner.since),
            Event::KeyCreated(event) => self.key(&event.key.id).map(|stored| stored.since),
            Event::KeyRevoked(event) => match self.key(&event.key_id) {
                Some(stored) => Some(stored.since),
                // It was revoked before its slice was taken.
                None => return Ok(()),
            },
            about_a_task => match about_a_task.task().and_then(|id| self.task(id)) {
                Some(task) => Some(task.last),
                None if matches!(event, Event::TaskCreated(_)) => None,
                None => return Ok(()),
            },
        };
        if rules::is_applied_already(seen, at.position) { Ok(()) } else { event.apply(self, at) }
    }
}
