//! A disk in memory that behaves as badly as a real one may.
//!
//! It keeps apart what programs see (the page cache) from what would survive a power cut, fails calls on
//! request, and produces the disk that is left after a crash, for any choice of what happened to each thing
//! that was not synced. It is deterministic: the same calls give the same disk.

mod crash;
mod faults;

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use crash::{Fate, Unsynced};
use disk::{Disk, File};
pub use faults::Errno;
use faults::{Call, Faults};

/// A directory in memory. Clones are the same directory.
#[derive(Clone, Default)]
pub struct FakeDisk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// What programs see.
    names: BTreeMap<String, usize>,
    /// What would survive.
    durable_names: BTreeMap<String, usize>,
    name_changes: Vec<NameChange>,
    files: Vec<Content>,
    faults: Faults,
    capacity_bytes: Option<u64>,
    locked: bool,
    longest_read: usize,
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    writes: Vec<Write>,
}

struct Write {
    offset: usize,
    bytes: Vec<u8>,
    /// A sync of this write failed: the cache holds it as clean, and no later sync will bring it to disk.
    abandoned: bool,
}

impl Write {
    /// What a newer write that is durable leaves of this one.
    fn without(self, newer: &Write) -> impl Iterator<Item = Write> {
        let part = |from: usize, to: usize| {
            (from < to).then(|| Write {
                offset: from,
                bytes: self.bytes[from - self.offset..to - self.offset].to_vec(),
                abandoned: self.abandoned,
            })
        };
        let (end, newer_end) = (self.offset + self.bytes.len(), newer.offset + newer.bytes.len());
        let before = part(self.offset, end.min(newer.offset));
        let after = part(self.offset.max(newer_end), end);
        before.into_iter().chain(after)
    }
}

enum NameChange {
    Set(String, usize),
    Rename(String, String, usize),
    Remove(String),
}

impl FakeDisk {
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the `at`-th call from now on (counted from 0) fail.
    pub fn fail_at(&self, at: u64, errno: Errno) {
        self.state().faults.fail_at(at, errno);
    }

    /// Lets the `at`-th call and all after it fail.
    pub fn fail_from(&self, at: u64, errno: Errno) {
        self.state().faults.fail_from(at, errno);
    }

    /// Lets the `at`-th call be the last that has any effect.
    pub fn halt_after(&self, at: u64) {
        self.state().faults.fail_from(at + 1, Errno::Halted);
    }

    /// Takes back every planned fault, and counts from 0 again.
    pub fn heal(&self) {
        self.state().faults = Faults::default();
    }

    /// How many calls were made since the start or [`Self::heal`].
    pub fn calls(&self) -> u64 {
        self.state().faults.calls()
    }

    /// Whether the `at`-th call could change anything on disk.
    pub fn call_changes(&self, at: u64) -> bool {
        self.state().faults.call_changes(at)
    }

    /// Limits the total length of all files.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity_bytes = bytes;
    }

    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    /// The most bytes that any one read asked for, which bounds the memory that readers need.
    pub fn longest_read(&self) -> usize {
        self.state().longest_read
    }

    /// The content of a file as programs see it.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(name).map(|id| state.files[*id].bytes.clone())
    }

    /// Puts a file there, durable at once.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.state();
        state.files.push(Content { durable: bytes.clone(), bytes, writes: Vec::new() });
        let id = state.files.len() - 1;
        state.names.insert(name.to_owned(), id);
        state.durable_names.insert(name.to_owned(), id);
    }

    /// Flips one bit of a file, as programs see it and as it would survive. Flipped again, it is as it was.
    pub fn flip(&self, name: &str, bit: u64) {
        let mut state = self.state();
        let Some(&id) = state.names.get(name) else { return };
        let (at, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        let content = &mut state.files[id];
        for bytes in [&mut content.bytes, &mut content.durable] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= mask;
            }
        }
    }

    /// Removes a file, durable at once.
    pub fn lose(&self, name: &str) {
        let mut state = self.state();
        state.names.remove(name);
        state.durable_names.remove(name);
    }

    /// Every name, in order.
    pub fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and hands out the state unless the call is to fail.
    fn call(&self, call: Call) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.faults.count(call)?;
        Ok(state)
    }

    fn file(&self, id: usize) -> Arc<dyn File> {
        Arc::new(FakeFile { disk: self.clone(), id })
    }
}

impl State {
    fn used_bytes(&self) -> u64 {
        self.names.values().map(|id| self.files[*id].bytes.len() as u64).sum()
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// How many of `bytes` more can be stored.
    fn room(&self, bytes: u64) -> u64 {
        self.capacity_bytes.map_or(bytes, |capacity| bytes.min(capacity.saturating_sub(self.used_bytes())))
    }

    fn write(&mut self, id: usize, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let offset = offset as usize;
        let end = offset + bytes.len();
        let growth = end.saturating_sub(self.files[id].bytes.len()) as u64;
        let missing = (growth - self.room(growth)) as usize;
        if missing > 0 && missing >= bytes.len() {
            return Err(ErrorKind::StorageFull.into());
        }
        let bytes = &bytes[..bytes.len() - missing];
        let content = &mut self.files[id];
        overwrite(&mut content.bytes, offset, bytes);
        content.writes.push(Write { offset, bytes: bytes.to_vec(), abandoned: false });
        Ok(bytes.len())
    }
}

fn overwrite(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}

impl Disk for FakeDisk {
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = self.call(Call::Look)?;
        if state.locked {
            return Err(ErrorKind::WouldBlock.into());
        }
        state.locked = true;
        Ok(Box::new(Lock(self.clone())))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut state = self.call(Call::Change)?;
        if state.names.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        state.files.push(Content::default());
        let id = state.files.len() - 1;
        state.names.insert(name.to_owned(), id);
        state.name_changes.push(NameChange::Set(name.to_owned(), id));
        drop(state);
        Ok(self.file(id))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let id = self.call(Call::Look)?.find(name)?;
        Ok(self.file(id))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.call(Call::Look)?.names.keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.call(Call::Change)?;
        let id = state.find(from)?;
        state.names.remove(from);
        state.names.insert(to.to_owned(), id);
        state.name_changes.push(NameChange::Rename(from.to_owned(), to.to_owned(), id));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.call(Call::Change)?;
        state.find(name)?;
        state.names.remove(name);
        state.name_changes.push(NameChange::Remove(name.to_owned()));
        Ok(())
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        Ok(self.call(Call::Look)?.names.contains_key(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.call(Call::Change)?;
        state.durable_names = state.names.clone();
        state.name_changes.clear();
        Ok(())
    }
}

struct Lock(FakeDisk);

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.state().locked = false;
    }
}

struct FakeFile {
    disk: FakeDisk,
    id: usize,
}

impl File for FakeFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.call(Call::Look)?;
        state.longest_read = state.longest_read.max(into.len());
        let content = &state.files[self.id].bytes;
        let from = content.get(offset as usize..).unwrap_or_default();
        let count = from.len().min(into.len());
        into[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        let is_short = state.faults.count_write()?;
        let bytes = if is_short { &bytes[..bytes.len().div_ceil(2)] } else { bytes };
        state.write(self.id, bytes, offset)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.call(Call::Change)?;
        let room = state.room(bytes);
        state.write(self.id, &vec![0; room as usize], 0)?;
        if room < bytes { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let counted = state.faults.count(Call::Change);
        let content = &mut state.files[self.id];
        if let Err(error) = counted {
            content.writes.iter_mut().for_each(|write| write.abandoned = true);
            return Err(error);
        }
        let mut abandoned = Vec::new();
        for write in std::mem::take(&mut content.writes) {
            if write.abandoned {
                abandoned.push(write);
            } else {
                overwrite(&mut content.durable, write.offset, &write.bytes);
                abandoned = abandoned.into_iter().flat_map(|older| older.without(&write)).collect();
            }
        }
        content.writes = abandoned;
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.call(Call::Look)?.files[self.id].bytes.len() as u64)
    }
}
