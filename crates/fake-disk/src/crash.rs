//! The disk after a power cut.

use super::{Content, FakeDisk, NameChange, State, Write, overwrite};
use std::sync::{Arc, Mutex};

const SECTOR_BYTES: usize = 512;

/// Something that the crash may have kept or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsynced {
    /// A create, rename or remove.
    Name,
    /// A write of so many sectors, or parts of sectors.
    Write { sectors: usize },
}

/// What the crash did to one unsynced thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Kept,
    Lost,
    /// Of a write, sector `i` was kept when bit `i % 64` is set. A name is kept when bit 0 is set.
    Torn(u64),
    /// The sectors hold noise. A name is lost.
    Garbage,
}

impl FakeDisk {
    /// Everything whose fate a crash would decide now: first the names, then the writes, in order. Writes
    /// to files that no name could lead to after the crash are left out; they are lost anyway.
    pub fn unsynced(&self) -> Vec<Unsynced> {
        let state = self.state();
        let names = state.name_changes.iter().map(|_| Unsynced::Name);
        let writes = state.reachable().into_iter().flat_map(|id| &state.files[id].writes);
        names.chain(writes.map(|write| Unsynced::Write { sectors: write.sectors() })).collect()
    }

    /// The disk after a power cut, with one fate for each of [`Self::unsynced`]; what has none is lost.
    pub fn crash(&self, fates: &[Fate]) -> FakeDisk {
        let state = self.state();
        let mut fates = fates.iter().copied().chain(std::iter::repeat(Fate::Lost));
        let mut names = state.durable_names.clone();
        for change in &state.name_changes {
            let kept = match fates.next() {
                Some(Fate::Kept) => true,
                Some(Fate::Torn(mask)) => mask & 1 == 1,
                _ => false,
            };
            match change {
                _ if !kept => {}
                NameChange::Set(name, id) => {
                    names.insert(name.clone(), *id);
                }
                NameChange::Rename(from, to, id) => {
                    names.remove(from);
                    names.insert(to.clone(), *id);
                }
                NameChange::Remove(name) => {
                    names.remove(name);
                }
            }
        }
        let mut files: Vec<_> = state.files.iter().map(|content| content.durable.clone()).collect();
        for id in state.reachable() {
            for write in &state.files[id].writes {
                write.survive(&mut files[id], fates.next().unwrap_or(Fate::Lost));
            }
        }
        let files = files
            .into_iter()
            .map(|bytes| Content { durable: bytes.clone(), bytes, writes: vec![] })
            .collect();
        let left = State {
            durable_names: names.clone(),
            names,
            files,
            capacity_bytes: state.capacity_bytes,
            ..State::default()
        };
        FakeDisk(Arc::new(Mutex::new(left)))
    }
}

impl State {
    /// The files that have a name now, had one at the last sync, or were given one in between.
    fn reachable(&self) -> Vec<usize> {
        let changed = self.name_changes.iter().filter_map(|change| match change {
            NameChange::Set(_, id) | NameChange::Rename(_, _, id) => Some(id),
            NameChange::Remove(_) => None,
        });
        let mut ids: Vec<_> = self.durable_names.values().chain(changed).copied().collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

impl Write {
    fn sectors(&self) -> usize {
        (self.offset + self.bytes.len()).div_ceil(SECTOR_BYTES) - self.offset / SECTOR_BYTES
    }

    fn survive(&self, content: &mut Vec<u8>, fate: Fate) {
        let mut at = self.offset;
        let end = self.offset + self.bytes.len();
        for sector in 0.. {
            if at >= end {
                break;
            }
            let until = end.min((at / SECTOR_BYTES + 1) * SECTOR_BYTES);
            let bytes = &self.bytes[at - self.offset..until - self.offset];
            match fate {
                Fate::Kept => overwrite(content, at, bytes),
                Fate::Torn(mask) if mask >> (sector % 64) & 1 == 1 => overwrite(content, at, bytes),
                Fate::Garbage => overwrite(content, at, &noise(at, bytes.len())),
                Fate::Lost | Fate::Torn(_) => {}
            }
            at = until;
        }
    }
}

/// Bytes that look like nothing, the same for the same place.
fn noise(seed: usize, length: usize) -> Vec<u8> {
    let mut x = seed as u64 | 1 << 40;
    let step = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 24) as u8
    };
    std::iter::repeat_with(step).take(length).collect()
}
