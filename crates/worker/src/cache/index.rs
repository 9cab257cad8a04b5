//! The index of the cache: its entries and the order of their last uses.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use blobs::{Digest, DigestFunction};

use super::{Key, Stamp, discard, stamp_of};

/// The part of the capacity that stays after an eviction, in tenths, so that not every addition evicts.
const KEPT_TENTHS: u64 = 9;

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub stamp: Stamp,
    pub is_verified: bool,
}

#[derive(Debug)]
pub(super) struct Index {
    entries: HashMap<Key, (Entry, u64)>,
    bytes: u64,
    max_bytes: u64,
    uses: u64,
}

impl Index {
    /// Lists the files of the directory. Other files are removed: the directory belongs to the cache alone.
    pub(super) fn scan(directory: &Path, max_bytes: u64) -> io::Result<Index> {
        let mut index = Index { entries: HashMap::new(), bytes: 0, max_bytes, uses: 0 };
        for shard in 0..=u8::MAX {
            for file in fs::read_dir(directory.join(format!("{shard:02x}")))? {
                let path = file?.path();
                let name = path.file_name().and_then(|name| name.to_str());
                match (name.and_then(key), stamp_of(&path)) {
                    (Some(key), Ok(stamp)) if path == directory.join(file_name(&key)) => {
                        index.add(key, Entry { stamp, is_verified: false });
                    }
                    _ => discard(&path),
                }
            }
        }
        Ok(index)
    }

    /// Adds or replaces an entry. Returns the evicted entries, whose files the caller removes.
    pub(super) fn add(&mut self, key: Key, entry: Entry) -> Vec<(Key, Stamp)> {
        self.remove(&key);
        self.uses += 1;
        self.bytes += key.digest.size;
        self.entries.insert(key, (entry, self.uses));
        if self.bytes <= self.max_bytes {
            Vec::new()
        } else {
            self.shrink(self.max_bytes / 10 * KEPT_TENTHS, Some(key))
        }
    }

    /// Evicts the least recently used entries, except one, until at most `to_bytes` are left. Returns the evicted entries,
    /// whose files the caller removes.
    pub(super) fn shrink(&mut self, to_bytes: u64, except: Option<Key>) -> Vec<(Key, Stamp)> {
        let mut by_use: Vec<_> = self
            .entries
            .iter()
            .map(|(key, (entry, used))| (*used, *key, entry.stamp))
            .filter(|(_, key, _)| Some(*key) != except)
            .collect();
        by_use.sort_unstable_by_key(|(used, ..)| *used);
        let mut evicted = Vec::new();
        for (_, key, stamp) in by_use {
            if self.bytes <= to_bytes {
                break;
            }
            self.remove(&key);
            evicted.push((key, stamp));
        }
        evicted
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    pub(super) fn remove(&mut self, key: &Key) {
        if self.entries.remove(key).is_some() {
            self.bytes -= key.digest.size;
        }
    }

    /// The entry, which counts as used now.
    pub(super) fn touch(&mut self, key: &Key) -> Option<Entry> {
        let (entry, used) = self.entries.get_mut(key)?;
        self.uses += 1;
        *used = self.uses;
        Some(*entry)
    }

    /// The stamp of a verified file, which counts as used now.
    pub(super) fn stamp(&mut self, key: &Key) -> Option<Stamp> {
        self.touch(key).filter(|entry| entry.is_verified).map(|entry| entry.stamp)
    }

    /// The stamp of any file, without a use.
    pub(super) fn peek(&self, key: &Key) -> Option<Stamp> {
        self.entries.get(key).map(|(entry, _)| entry.stamp)
    }

    pub(super) fn verified(&mut self, key: &Key) {
        if let Some((entry, _)) = self.entries.get_mut(key) {
            entry.is_verified = true;
        }
    }
}

/// The path of a content below the cache's directory.
pub(crate) fn file_name(key: &Key) -> String {
    let Digest { function, hash, size } = &key.digest;
    let variant = if key.is_executable { "x" } else { "r" };
    format!("{:02x}/{hash}.{size}.{}.{variant}", hash.0[0], function.name())
}

pub(crate) fn key(name: &str) -> Option<Key> {
    let mut parts = name.split('.');
    let (hash, size) = (parts.next()?, parts.next()?);
    let function = DigestFunction::from_name(parts.next()?)?;
    let is_executable = match (parts.next()?, parts.next()) {
        ("x", None) => true,
        ("r", None) => false,
        _ => return None,
    };
    let digest = Digest::parse(function, &format!("{hash}/{size}")).ok()?;
    Some(Key { digest, is_executable })
}
