//! The state of one queue: its settings and the indexes over its tasks.

use std::collections::{BTreeSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::ready::ReadyIndex;
use super::slab::{Slab, Slot};
use crate::{Position, QueueConfig, QueueDefaults, QueueKey, QueueSettings, Task, TaskState};

#[derive(Debug)]
pub(crate) struct QueueState {
    pub key: Arc<QueueKey>,
    /// The number of its tenant.
    pub tenant: u32,
    pub config: QueueConfig,
    pub settings: QueueSettings,
    /// The record that configured the queue, if one did.
    pub configured: Option<Position>,
    pub ready: ReadyIndex,
    /// How many tasks wait for their time.
    pub delayed: usize,
    /// Every task of the queue by its creation.
    pub created: BTreeSet<(Position, Slot)>,
    /// Final tasks in the order in which they ended: the front is purged first.
    pub ended: VecDeque<(Position, Slot)>,
    counts: [u64; 5],
    dedup: HashTable<Slot>,
    hasher: FixedState,
}

impl QueueState {
    pub(crate) fn new(key: Arc<QueueKey>, tenant: u32, defaults: &QueueDefaults) -> QueueState {
        let config = QueueConfig::default();
        QueueState {
            settings: config.settings(&defaults.of(&key.name)),
            key,
            tenant,
            config,
            configured: None,
            ready: ReadyIndex::default(),
            delayed: 0,
            created: BTreeSet::new(),
            ended: VecDeque::new(),
            counts: [0; 5],
            dedup: HashTable::new(),
            hasher: FixedState::default(),
        }
    }

    /// A queue exists while it is configured or has tasks.
    pub(crate) fn is_unused(&self) -> bool {
        self.configured.is_none() && self.created.is_empty()
    }

    pub(crate) fn count(&self, state: TaskState) -> u64 {
        self.counts[state as usize]
    }

    pub(crate) fn count_mut(&mut self, state: TaskState) -> &mut u64 {
        &mut self.counts[state as usize]
    }

    /// The most tasks that may still be added, or no limit.
    pub(crate) fn remaining_capacity(&self) -> Option<u64> {
        let open = self.count(TaskState::Waiting) + self.count(TaskState::Leased);
        self.settings.max_queue_size.map(|max| max.saturating_sub(open))
    }

    pub(crate) fn dedup_get(&self, tasks: &Slab, key: &str) -> Option<Slot> {
        self.dedup.find(self.hasher.hash_one(key), |slot| dedup_key(tasks.at(*slot)) == Some(key)).copied()
    }

    pub(crate) fn dedup_insert(&mut self, tasks: &Slab, slot: Slot) {
        let Some(key) = dedup_key(tasks.at(slot)) else { return };
        let hasher = &self.hasher;
        self.dedup.insert_unique(hasher.hash_one(key), slot, |slot| {
            hasher.hash_one(dedup_key(tasks.at(*slot)).unwrap_or(""))
        });
    }

    pub(crate) fn dedup_remove(&mut self, tasks: &Slab, slot: Slot) {
        let Some(key) = dedup_key(tasks.at(slot)) else { return };
        if let Ok(entry) = self.dedup.find_entry(self.hasher.hash_one(key), |other| *other == slot) {
            entry.remove();
        }
    }

    pub(crate) fn dedup_len(&self) -> usize {
        self.dedup.len()
    }
}

fn dedup_key(task: &Task) -> Option<&str> {
    task.options.as_ref()?.dedup.as_ref().map(|dedup| &*dedup.key)
}
