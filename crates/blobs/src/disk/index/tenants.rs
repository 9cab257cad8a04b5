//! The entries of each tenant in the index: their bytes, and those that a quota evicts next.

use std::{collections::HashMap, sync::atomic::Ordering};

use super::{Entry, Index, Key};
use crate::Tenant;

/// The tenants that have or had entries, each with a short name.
#[derive(Default)]
pub(super) struct Tenants {
    short_names: HashMap<[u8; 16], u32>,
    usage: Vec<Usage>,
}

struct Usage {
    fingerprint: [u8; 16],
    /// Records and files.
    bytes: u64,
    /// Insertions and unpinned keys: what may add an entry that can be evicted.
    changes: u64,
    /// The changes at which every entry that could be evicted was.
    exhausted_at: Option<u64>,
}

impl Tenants {
    pub(super) fn short_name_or_new(&mut self, fingerprint: [u8; 16]) -> u32 {
        *self.short_names.entry(fingerprint).or_insert_with(|| {
            self.usage.push(Usage { fingerprint, bytes: 0, changes: 0, exhausted_at: None });
            self.usage.len() as u32 - 1
        })
    }

    pub(super) fn short_name(&self, fingerprint: &[u8; 16]) -> Option<u32> {
        self.short_names.get(fingerprint).copied()
    }

    pub(super) fn inserted(&mut self, entry: &Entry) {
        let usage = &mut self.usage[entry.tenant as usize];
        usage.bytes += entry.bytes();
        usage.changes += 1;
    }

    pub(super) fn removed(&mut self, entry: &Entry) {
        self.usage[entry.tenant as usize].bytes -= entry.bytes();
    }

    pub(super) fn unpinned(&mut self, tenant: u32) {
        self.usage[tenant as usize].changes += 1;
    }

    fn usage(&self, fingerprint: &[u8; 16]) -> Option<(u32, &Usage)> {
        let tenant = self.short_name(fingerprint)?;
        Some((tenant, &self.usage[tenant as usize]))
    }
}

/// Entries of one tenant, the least recently used first.
pub struct LeastUsed {
    pub keys: Vec<Key>,
    /// Whether the tenant has no other entries that can be evicted.
    pub is_all: bool,
    changes: u64,
}

impl Index {
    /// The short name of a tenant, if anything was ever stored for it.
    pub fn tenant(&self, tenant: &Tenant) -> Option<u32> {
        self.tenants.short_name(&tenant.fingerprint())
    }

    pub fn tenant_or_new(&mut self, fingerprint: [u8; 16]) -> u32 {
        self.tenants.short_name_or_new(fingerprint)
    }

    pub fn fingerprint(&self, tenant: u32) -> [u8; 16] {
        self.tenants.usage[tenant as usize].fingerprint
    }

    /// The bytes of the records and files of a tenant.
    pub fn bytes_of(&self, tenant: &[u8; 16]) -> u64 {
        self.tenants.usage(tenant).map_or(0, |(_, usage)| usage.bytes)
    }

    /// Whether a tenant may have entries that can be evicted. It has none after the last of them was evicted, until an entry
    /// is inserted or unpinned.
    pub fn may_evict_of(&self, tenant: &[u8; 16]) -> bool {
        self.tenants.usage(tenant).is_some_and(|(_, usage)| usage.exhausted_at != Some(usage.changes))
    }

    /// Notes that every entry of a tenant that could be evicted was.
    pub fn exhausted(&mut self, tenant: &[u8; 16], evicted: &LeastUsed) {
        if let Some(tenant) = self.tenants.short_name(tenant) {
            self.tenants.usage[tenant as usize].exhausted_at = Some(evicted.changes);
        }
    }

    /// The least recently used blobs and cache entries of a tenant that are not pinned, so many bytes of them if there are.
    /// Scans the whole index.
    pub fn least_used_of(&self, tenant: &[u8; 16], bytes: u64) -> LeastUsed {
        let Some((tenant, usage)) = self.tenants.usage(tenant) else {
            return LeastUsed { keys: Vec::new(), is_all: true, changes: 0 };
        };
        let can_go = |entry: &&Entry| entry.tenant == tenant && !self.pins.contains_key(&entry.key());
        let mut entries: Vec<(u64, &Entry)> = self
            .entries
            .iter()
            .flatten()
            .filter(can_go)
            .map(|entry| (entry.used_at.load(Ordering::Relaxed), entry))
            .collect();
        entries.sort_unstable_by_key(|(used_at, _)| *used_at);
        let mut freed = 0;
        let goes = |(_, entry): &&(u64, &Entry)| {
            let is_short = freed < bytes;
            freed += entry.bytes();
            is_short
        };
        let keys: Vec<Key> = entries.iter().take_while(goes).map(|(_, entry)| entry.key()).collect();
        LeastUsed { is_all: keys.len() == entries.len(), keys, changes: usage.changes }
    }
}
