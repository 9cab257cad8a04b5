//! Finds a task's slot by its id. Split into shards, so that no single growth rehashes millions of entries, and
//! it stores slots only, reading the ids from the slab.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::slab::{Slab, Slot};
use crate::TaskId;

const SHARDS: usize = 1_024;

#[derive(Debug)]
pub struct IdIndex {
    hasher: FixedState,
    shards: Vec<HashTable<Slot>>,
}

impl Default for IdIndex {
    fn default() -> Self {
        IdIndex { hasher: FixedState::default(), shards: vec![HashTable::new(); SHARDS] }
    }
}

impl IdIndex {
    pub fn get(&self, tasks: &Slab, id: TaskId) -> Option<Slot> {
        let hash = self.hasher.hash_one(id);
        self.shards[shard(hash)].find(hash, |slot| tasks.at(*slot).id == id).copied()
    }

    pub fn insert(&mut self, tasks: &Slab, id: TaskId, slot: Slot) {
        let hash = self.hasher.hash_one(id);
        let hasher = &self.hasher;
        self.shards[shard(hash)].insert_unique(hash, slot, |slot| hasher.hash_one(tasks.at(*slot).id));
    }

    /// Forgets the id; the slot must still hold its task.
    pub fn remove(&mut self, tasks: &Slab, id: TaskId) {
        let hash = self.hasher.hash_one(id);
        if let Ok(entry) = self.shards[shard(hash)].find_entry(hash, |slot| tasks.at(*slot).id == id) {
            entry.remove();
        }
    }

    pub fn len(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }
}

/// The table itself uses the top and the bottom bits of the hash; the shard is taken from between.
fn shard(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}
