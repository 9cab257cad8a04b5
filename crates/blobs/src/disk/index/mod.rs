//! The index of the store in memory: where each blob is, when it was last used, and whether it is pinned.
//!
//! A lookup, which marks an entry used, needs only a shared lock. The order of use is maintained lazily: the heap holds
//! a lower bound of the last use, and the entry holds the exact time. The entry on top of the heap whose two times agree
//! is therefore exactly the least recently used entry.

mod tenants;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use foldhash::fast::RandomState;
use hashbrown::{HashTable, hash_table};

use self::tenants::Tenants;
use super::{
    pack::{Pack, PackState},
    record::{HEADER_BYTES, Header, Placement, Space, data_bytes},
};
use crate::{Digest, HASH_BYTES};

/// The key of one entry of the store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    pub tenant: u32,
    pub space: Space,
    pub hash: [u8; HASH_BYTES],
}

/// One cache line. Looking up a million names costs a million misses; it should not cost two.
#[repr(C, align(64))]
struct Entry {
    hash: [u8; HASH_BYTES],
    tenant: u32,
    space: Space,
    placement: Placement,
    pack: u32,
    offset: u32,
    size: u64,
    used_at: AtomicU64,
}

impl Entry {
    fn key(&self) -> Key {
        Key { tenant: self.tenant, space: self.space, hash: self.hash }
    }

    fn taken(&self) -> Taken {
        Taken {
            key: self.key(),
            placement: self.placement,
            size: self.size,
            record_bytes: self.record_bytes(),
        }
    }

    fn data_bytes(&self) -> u32 {
        data_bytes(self.placement, self.size)
    }

    fn record_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.data_bytes())
    }

    /// With the file, if it has one.
    fn bytes(&self) -> u64 {
        self.record_bytes() + if self.placement == Placement::File { self.size } else { 0 }
    }
}

/// Where an entry's record is.
#[derive(Clone)]
pub struct Location {
    pub pack: Arc<Pack>,
    pub offset: u32,
    pub data_bytes: u32,
    pub placement: Placement,
    pub size: u64,
}

/// An entry that has just left the index.
pub struct Taken {
    pub key: Key,
    pub placement: Placement,
    pub size: u64,
    pub record_bytes: u64,
}

pub struct Index {
    table: HashTable<u32>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    by_use: BinaryHeap<Reverse<(u64, u32)>>,
    pins: HashMap<Key, u32>,
    tenants: Tenants,
    pub packs: BTreeMap<u32, PackState>,
    clock: AtomicU64,
    hash_state: RandomState,
}

impl Index {
    pub fn new() -> Index {
        Index {
            table: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
            by_use: BinaryHeap::new(),
            pins: HashMap::new(),
            tenants: Tenants::default(),
            packs: BTreeMap::new(),
            clock: AtomicU64::new(1),
            hash_state: RandomState::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn reserve(&mut self, more: usize) {
        let Index { table, entries, hash_state, .. } = self;
        entries.reserve(more);
        self.by_use.reserve(more);
        table.reserve(more, |slot| slot_hash(hash_state, entries, *slot));
    }

    /// A time for marking entries used.
    pub fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether a blob is here, with this size. Marks it used at `now`.
    pub fn touch(&self, tenant: u32, digest: &Digest, now: u64) -> bool {
        let key = Key { tenant, space: digest.function.into(), hash: digest.hash.0 };
        self.entry(&key).is_some_and(|entry| {
            entry.used_at.store(now, Ordering::Relaxed);
            entry.size == digest.size
        })
    }

    /// The location of an entry. Marks the entry used.
    pub fn locate(&self, key: &Key) -> Option<Location> {
        let entry = self.entry(key)?;
        entry.used_at.store(self.now(), Ordering::Relaxed);
        let pack = self.packs.get(&entry.pack)?.pack.clone();
        Some(Location {
            pack,
            offset: entry.offset,
            data_bytes: entry.data_bytes(),
            placement: entry.placement,
            size: entry.size,
        })
    }

    /// Whether the store has an entry with this key.
    pub fn has(&self, tenant: [u8; 16], space: Space, hash: &[u8; HASH_BYTES]) -> bool {
        let tenant = self.tenants.short_name(&tenant);
        tenant.is_some_and(|tenant| self.slot(&Key { tenant, space, hash: *hash }).is_some())
    }

    /// The pack and the offset of the record of a key.
    pub fn position(&self, key: &Key) -> Option<(u32, u32)> {
        self.entry(key).map(|entry| (entry.pack, entry.offset))
    }

    /// The size of an entry, without marking the entry used.
    pub fn size(&self, key: &Key) -> Option<u64> {
        self.entry(key).map(|entry| entry.size)
    }

    /// Whether this very record is what the index points to.
    pub fn is_current(&self, header: &Header) -> bool {
        let Some(tenant) = self.tenants.short_name(&header.tenant) else { return false };
        let key = Key { tenant, space: header.space, hash: header.hash };
        self.entry(&key).is_some_and(|entry| (entry.pack, entry.offset) == (header.pack, header.offset))
    }

    /// Points to a record. An earlier record of the same key is superseded; returns how it was stored.
    pub fn insert(&mut self, header: &Header) -> Option<Taken> {
        let tenant = self.tenant_or_new(header.tenant);
        let now = self.now();
        let entry = Entry {
            hash: header.hash,
            tenant,
            space: header.space,
            placement: header.placement,
            pack: header.pack,
            offset: header.offset,
            size: header.size,
            used_at: AtomicU64::new(now),
        };
        if let Some(state) = self.packs.get_mut(&header.pack) {
            state.live_bytes += header.bytes();
        }
        self.tenants.inserted(&entry);
        let key = entry.key();
        let hash = key_hash(&self.hash_state, &key);
        let Index { table, entries, hash_state, .. } = self;
        let found = table.entry(
            hash,
            |slot| entries[*slot as usize].as_ref().is_some_and(|entry| entry.key() == key),
            |slot| slot_hash(hash_state, entries, *slot),
        );
        match found {
            hash_table::Entry::Occupied(occupied) => {
                let old = entries[*occupied.get() as usize].replace(entry)?;
                self.bury(&old);
                Some(old.taken())
            }
            hash_table::Entry::Vacant(vacant) => {
                let slot = match self.free.pop() {
                    Some(slot) => {
                        entries[slot as usize] = Some(entry);
                        slot
                    }
                    None => {
                        entries.push(Some(entry));
                        entries.len() as u32 - 1
                    }
                };
                vacant.insert(slot);
                self.by_use.push(Reverse((now, slot)));
                None
            }
        }
    }

    /// Points to a record that was moved; the entry does not count as used.
    pub fn relocate(&mut self, header: &Header) {
        let tenant = self.tenant_or_new(header.tenant);
        let key = Key { tenant, space: header.space, hash: header.hash };
        let Some(slot) = self.slot(&key) else { return };
        let Some(entry) = self.entries[slot as usize].as_mut() else { return };
        let (old_pack, bytes) = (entry.pack, entry.record_bytes());
        (entry.pack, entry.offset) = (header.pack, header.offset);
        if let Some(state) = self.packs.get_mut(&old_pack) {
            state.live_bytes -= bytes;
            state.has_moved = true;
        }
        if let Some(state) = self.packs.get_mut(&header.pack) {
            state.live_bytes += header.bytes();
        }
    }

    pub fn remove(&mut self, key: &Key) -> Option<Taken> {
        let hash = key_hash(&self.hash_state, key);
        let entries = &self.entries;
        let found = self
            .table
            .find_entry(hash, |slot| {
                entries[*slot as usize].as_ref().is_some_and(|entry| entry.key() == *key)
            })
            .ok()?;
        let (slot, _) = found.remove();
        let entry = self.entries[slot as usize].take()?;
        self.free.push(slot);
        self.bury(&entry);
        Some(entry.taken())
    }

    /// Removes a blob unless it was pinned meanwhile.
    pub fn remove_unpinned(&mut self, key: &Key) -> Option<Taken> {
        if self.pins.contains_key(key) { None } else { self.remove(key) }
    }

    /// The least recently used entry that can be evicted: not pinned, and content if only content may be evicted. Pinned
    /// entries that are passed over are marked used. The caller removes the entry or keeps it.
    pub fn next_to_go(&mut self, only_content: bool) -> Option<Key> {
        let mut passed_over = 0;
        while let Some(Reverse((time, slot))) = self.by_use.pop() {
            let Some(entry) = &self.entries[slot as usize] else { continue };
            let used_at = entry.used_at.load(Ordering::Relaxed);
            let key = entry.key();
            if used_at > time {
                self.by_use.push(Reverse((used_at, slot)));
            } else if self.pins.contains_key(&key) || (only_content && key.space.function().is_none()) {
                self.keep(&key);
                passed_over += 1;
                if passed_over > self.table.len() {
                    return None;
                }
            } else {
                return Some(key);
            }
        }
        None
    }

    /// Marks an entry used that could have been evicted next.
    pub fn keep(&mut self, key: &Key) {
        let now = self.now();
        let Some(slot) = self.slot(key) else { return };
        if let Some(entry) = &self.entries[slot as usize] {
            entry.used_at.store(now, Ordering::Relaxed);
        }
        self.by_use.push(Reverse((now, slot)));
    }

    /// The number of pinned keys.
    pub fn pinned(&self) -> usize {
        self.pins.len()
    }

    /// Pins keys against eviction, whether or not the entries exist yet.
    pub fn pin(&mut self, keys: &[Key]) {
        for key in keys {
            *self.pins.entry(*key).or_insert(0) += 1;
        }
    }

    pub fn unpin(&mut self, keys: &[Key]) {
        for key in keys {
            if let std::collections::hash_map::Entry::Occupied(mut pins) = self.pins.entry(*key) {
                *pins.get_mut() -= 1;
                if *pins.get() == 0 {
                    pins.remove();
                    self.tenants.unpinned(key.tenant);
                }
            }
        }
    }

    /// Dead bytes in packs.
    pub fn dead_bytes(&self) -> u64 {
        self.packs.values().map(PackState::dead_bytes).sum()
    }

    /// The live entries of one pack, in the order of the pack: keys and locations. Scans the whole index.
    pub fn in_pack(&self, pack: u32) -> Vec<(Key, u32, u32)> {
        let entries = self.entries.iter().flatten().filter(|entry| entry.pack == pack);
        let mut found: Vec<_> =
            entries.map(|entry| (entry.key(), entry.offset, entry.data_bytes())).collect();
        found.sort_unstable_by_key(|(_, offset, _)| *offset);
        found
    }

    /// The keys of all blobs with their own file.
    pub fn in_files(&self) -> impl Iterator<Item = (Key, u64)> {
        let entries = self.entries.iter().flatten().filter(|entry| entry.placement == Placement::File);
        entries.map(|entry| (entry.key(), entry.size))
    }

    fn bury(&mut self, entry: &Entry) {
        self.tenants.removed(entry);
        if let Some(state) = self.packs.get_mut(&entry.pack) {
            state.live_bytes -= entry.record_bytes();
        }
    }

    fn entry(&self, key: &Key) -> Option<&Entry> {
        self.slot(key).and_then(|slot| self.entries[slot as usize].as_ref())
    }

    fn slot(&self, key: &Key) -> Option<u32> {
        let hash = key_hash(&self.hash_state, key);
        let is_key =
            |slot: &u32| self.entries[*slot as usize].as_ref().is_some_and(|entry| entry.key() == *key);
        self.table.find(hash, is_key).copied()
    }
}

/// The hashes are random already; what is hashed here is a part of one, with a seed, so that no client
/// can choose content that fills one bucket of the table.
fn key_hash(state: &RandomState, key: &Key) -> u64 {
    use std::hash::BuildHasher;
    let mut part = [0; 16];
    part.copy_from_slice(&key.hash[..16]);
    state.hash_one((u128::from_le_bytes(part), key.tenant, key.space as u8))
}

fn slot_hash(state: &RandomState, entries: &[Option<Entry>], slot: u32) -> u64 {
    entries[slot as usize].as_ref().map_or(0, |entry| key_hash(state, &entry.key()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_one_cache_line() {
        assert_eq!(size_of::<Option<Entry>>(), 64);
    }
}
