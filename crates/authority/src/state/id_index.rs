//! Finds a task's slot by its id. Split into shards, so that no single growth rehashes millions of entries. It stores
//! slots and reads the ids from the slab, but keeps a part of each hash, so that neither growing nor most lookups of
//! an id that is not there touch the slab.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::slab::{Slab, Slot};
use crate::TaskId;

const SHARD_BITS: u32 = 10;
/// The table uses the bottom bits and the top seven; the shard is taken from between.
const SHARD_SHIFT: u32 = 32 - 7 - SHARD_BITS;

#[derive(Debug)]
pub(super) struct IdIndex {
    hasher: FixedState,
    shards: Vec<HashTable<Entry>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    slot: Slot,
    hash: u32,
}

impl Default for IdIndex {
    fn default() -> Self {
        IdIndex { hasher: FixedState::default(), shards: vec![HashTable::new(); 1 << SHARD_BITS] }
    }
}

impl IdIndex {
    pub(super) fn get(&self, tasks: &Slab, id: TaskId) -> Option<Slot> {
        let hash = self.hash(id);
        let found = self.shards[shard(hash)]
            .find(table_hash(hash), |entry| entry.hash == hash && tasks.at(entry.slot).id == id);
        found.map(|entry| entry.slot)
    }

    pub(super) fn insert(&mut self, id: TaskId, slot: Slot) {
        let hash = self.hash(id);
        let entry = Entry { slot, hash };
        self.shards[shard(hash)].insert_unique(table_hash(hash), entry, |entry| table_hash(entry.hash));
    }

    /// Forgets the id of the task in this slot.
    pub(super) fn remove(&mut self, id: TaskId, slot: Slot) {
        let hash = self.hash(id);
        let found = self.shards[shard(hash)].find_entry(table_hash(hash), |entry| entry.slot == slot);
        if let Ok(entry) = found {
            entry.remove();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }

    fn hash(&self, id: TaskId) -> u32 {
        let hash = self.hasher.hash_one(id);
        (hash >> 32) as u32 ^ hash as u32
    }
}

fn shard(hash: u32) -> usize {
    (hash >> SHARD_SHIFT) as usize & ((1 << SHARD_BITS) - 1)
}

/// As many bits as the table wants, made from those that are kept.
fn table_hash(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
