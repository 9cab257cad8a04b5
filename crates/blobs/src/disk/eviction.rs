//! Keeps the store below its cap: counts bytes, evicts the least recently used entries, and cleans packs.
//!
//! The cap is on bytes on disk, dead ones included; while a pack is cleaned, its live bytes are there twice.
//! Evicting a file frees it at once. Evicting a packed blob leaves dead bytes in its pack; when too many bytes
//! of all packs are dead, the oldest pack is cleaned: its live records move to the newest pack, and the file is removed.
//! Because it is always the oldest pack, records of removals need never be moved: no older record can exist.

use std::{
    fs,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    checkpoint, index::Taken, inner::Inner, options::FREE_SPACE_CHECK_BYTES, pack::FIRST_RECORD_AT,
    record::Placement, store::Store, writer::Writer,
};
use crate::{Error, Result};

/// Packs are cleaned when one byte in so many is dead. A lower share wastes less space and copies more.
const DEAD_SHARE: u64 = 4;
/// The oldest pack is cleaned when one byte in so many of its own is dead.
const OLDEST_DEAD_SHARE: u64 = 2;
/// The background thread keeps this share of the cap free, so that writers rarely have to evict.
const HEADROOM_SHARE: u64 = 32;
/// Entries evicted under one lock.
const EVICT_AT_ONCE: usize = 64;

/// Bytes on disk.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Usage {
    pub blobs: usize,
    pub pack_bytes: u64,
    pub dead_pack_bytes: u64,
    pub file_bytes: u64,
    /// Written by uploads that are not finished.
    pub upload_bytes: u64,
    /// Blobs that are kept from eviction.
    pub pinned: usize,
    pub cap_bytes: u64,
}

#[derive(Default)]
pub struct Totals {
    pack_bytes: AtomicU64,
    file_bytes: AtomicU64,
    reserved_bytes: Mutex<u64>,
    /// Reservations until the free space of the file system is checked again.
    unchecked_bytes: AtomicU64,
}

impl Totals {
    pub fn add_pack_bytes(&self, bytes: u64) {
        self.pack_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn remove_pack_bytes(&self, bytes: u64) {
        self.pack_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub fn add_file_bytes(&self, bytes: u64) {
        self.file_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn remove_file_bytes(&self, bytes: u64) {
        self.file_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn stored(&self) -> u64 {
        self.pack_bytes.load(Ordering::Relaxed) + self.file_bytes.load(Ordering::Relaxed)
    }

    fn used(&self) -> u64 {
        self.stored() + *self.reserved_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes if that leaves the total at or below the cap.
    fn try_reserve(&self, bytes: u64, cap: u64) -> Option<Reservation<'_>> {
        let mut reserved = self.reserved_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stored() + *reserved + bytes > cap {
            return None;
        }
        *reserved += bytes;
        Some(Reservation { totals: self, bytes })
    }

    /// Has the next reservation check the free space if a write found none. Others may have taken it before the next
    /// check was due.
    pub fn note_failure(&self, error: &Error) {
        if matches!(error, Error::DiskFull) {
            self.unchecked_bytes.store(FREE_SPACE_CHECK_BYTES, Ordering::Relaxed);
        }
    }

    pub fn release(&self, bytes: u64) {
        *self.reserved_bytes.lock().unwrap_or_else(PoisonError::into_inner) -= bytes;
    }
}

/// Bytes that a write will need. They count until this is dropped, which is after they have been written and
/// are counted where they are.
pub struct Reservation<'a> {
    totals: &'a Totals,
    bytes: u64,
}

impl Reservation<'_> {
    /// Leaves it to the caller to release the bytes.
    fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.totals.release(self.bytes);
    }
}

impl Inner {
    /// Room for records of so many bytes, and for the heads of the packs that they may begin.
    pub fn reserve_records(&self, bytes: u64) -> Result<Reservation<'_>> {
        self.reserve(bytes + (2 + bytes / self.options.pack_bytes) * FIRST_RECORD_AT)
    }

    /// Like `reserve`; the caller releases the bytes.
    pub fn reserve_bytes(&self, bytes: u64) -> Result<()> {
        self.reserve(bytes)?.keep();
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> Result<Reservation<'_>> {
        let cap = self.options.cap_bytes;
        if let Some(reservation) = self.totals.try_reserve(bytes, cap) {
            self.check_free_space(bytes)?;
            if self.totals.used() > self.comfortable_bytes() {
                self.signal.wake();
            }
            return Ok(reservation);
        }
        let _housekeeping = self.keep_house();
        self.reserve_by_eviction(bytes)
    }

    /// Evicts until so many bytes fit. The caller holds `housekeeping`.
    pub fn reserve_by_eviction(&self, bytes: u64) -> Result<Reservation<'_>> {
        let cap = self.options.cap_bytes;
        loop {
            if let Some(reservation) = self.totals.try_reserve(bytes, cap) {
                return Ok(reservation);
            }
            let short = (self.totals.used() + bytes).saturating_sub(cap).max(1);
            if !self.make_some_room(short)? {
                return Err(Error::Full { needed: bytes });
            }
        }
    }

    /// Checks the free space after every so many bytes, and evicts when too little is left for others.
    fn check_free_space(&self, bytes: u64) -> Result<()> {
        let unchecked = self.totals.unchecked_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if self.options.keep_free_bytes == 0 || unchecked < FREE_SPACE_CHECK_BYTES {
            return Ok(());
        }
        self.totals.unchecked_bytes.store(0, Ordering::Relaxed);
        self.make_free_space().inspect_err(|error| self.totals.note_failure(error))
    }

    fn make_free_space(&self) -> Result<()> {
        let _housekeeping = self.keep_house();
        while let short @ 1.. = self.options.keep_free_bytes.saturating_sub(self.free_bytes()?) {
            if !self.make_some_room(short)? {
                return Err(Error::DiskFull);
            }
        }
        Ok(())
    }

    fn free_bytes(&self) -> Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.store_dir.directory)
            .map_err(|errno| Error::io("check the free space of", &self.root)(errno.into()))?;
        Ok(stat.f_bavail * stat.f_frsize)
    }

    /// What the background thread aims at.
    fn comfortable_bytes(&self) -> u64 {
        self.options.cap_bytes - self.options.cap_bytes / HEADROOM_SHARE
    }

    /// Frees the space that writers will need soon. The caller holds `housekeeping`.
    pub fn make_headroom(&self) -> Result<()> {
        while let short @ 1.. = self.totals.used().saturating_sub(self.comfortable_bytes()) {
            if !self.make_some_room(short)? {
                break;
            }
        }
        Ok(())
    }

    /// Evicts or cleans a little; false when there is nothing left to do. The caller holds `housekeeping`.
    fn make_some_room(&self, short: u64) -> Result<bool> {
        let cleaned = self.clean_some();
        match &cleaned {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            // Cleaning takes space before it frees any. Evicting may free that for the next turn.
            Err(error) => tracing::warn!(%error, "a pack could not be cleaned"),
        }
        let evicted = self.evict_some(short);
        if matches!(evicted, Ok(true)) {
            return Ok(true);
        }
        // Everything is in use. What can still be had is what died of it.
        let cleaned = cleaned.and_then(|_| Ok(self.index().dead_bytes() > 0 && self.clean_oldest()?));
        Ok(cleaned? || evicted?)
    }

    /// Removes or cleans a pack, if there is one that is worth it.
    fn clean_some(&self) -> Result<bool> {
        if let Some(pack) = self.worth_dropping() {
            self.drop_pack(pack)?;
            return Ok(true);
        }
        Ok(self.is_worth_cleaning() && self.clean_oldest()?)
    }

    /// A pack without live records.
    fn worth_dropping(&self) -> Option<u32> {
        let newest = self.writer().pack.number;
        let index = self.index();
        let mut packs = index.packs.iter().filter(|(number, _)| **number != newest);
        packs.find(|(_, state)| state.live_bytes == 0 && !state.removes).map(|(number, _)| *number)
    }

    fn is_worth_cleaning(&self) -> bool {
        let index = self.index();
        let Some((_, oldest)) = index.packs.first_key_value() else { return false };
        oldest.dead_bytes() > oldest.bytes / OLDEST_DEAD_SHARE
            || index.dead_bytes() > self.totals.pack_bytes.load(Ordering::Relaxed) / DEAD_SHARE
    }

    /// Evicts entries to free `short` bytes, up to the limit of one turn.
    fn evict_some(&self, short: u64) -> Result<bool> {
        let mut gone = Vec::new();
        let mut evicted = 0;
        let mut freed = 0;
        let mut unburied = None;
        {
            let mut writer = self.writer();
            while freed < short && evicted < EVICT_AT_ONCE {
                match self.take_least_used(&mut writer, unburied.is_some()) {
                    Ok(Some(taken)) => {
                        evicted += 1;
                        freed += taken.record_bytes
                            + if taken.placement == Placement::File { taken.size } else { 0 };
                        gone.extend(writer.forget(self, &taken));
                    }
                    Ok(None) => break,
                    Err(error) => unburied = Some(error),
                }
            }
        }
        for path in gone {
            let _ = fs::remove_file(path);
        }
        match unburied {
            Some(error) if evicted == 0 => Err(error),
            _ => Ok(evicted > 0),
        }
    }

    /// Takes the least recently used entry out of the index, and records it if it must not come back.
    fn take_least_used(&self, writer: &mut Writer, only_content: bool) -> Result<Option<Taken>> {
        let mut index = self.index_mut();
        let Some(key) = index.next_to_go(only_content) else { return Ok(None) };
        if key.space.function().is_none() {
            // Content that comes back after a restart is still right. An entry that comes back might be one
            // that a later entry had replaced, so it stays unless there is a record that hides it.
            drop(index);
            let buried = writer.bury(self, &key);
            index = self.index_mut();
            if let Err(error) = buried {
                index.keep(&key);
                return Err(error);
            }
        }
        Ok(index.remove(&key))
    }

    /// Moves what is live in the oldest pack to the newest, and removes the oldest. The caller holds
    /// `housekeeping`.
    fn clean_oldest(&self) -> Result<bool> {
        let oldest = self.index().packs.first_key_value().map(|(_, state)| state.pack.clone());
        let Some(oldest) = oldest else { return Ok(false) };
        {
            let mut writer = self.writer();
            if writer.pack.number == oldest.number {
                writer.roll(self)?;
            }
        }
        let live = self.index().in_pack(oldest.number);
        for (key, offset, data_bytes) in &live {
            match oldest.read(*offset, *data_bytes)? {
                Some((header, data)) => self.writer().relocate(self, &header, &data)?,
                None => self.writer().remove(self, key, (oldest.number, *offset))?,
            }
        }
        self.drop_pack(oldest.number)?;
        Ok(true)
    }

    /// Removes a pack without live records. The caller holds `housekeeping`.
    fn drop_pack(&self, number: u32) -> Result<()> {
        let has_moved = || self.index().packs.get(&number).is_some_and(|state| state.has_moved);
        if has_moved() {
            // The copies must be safe before the originals go, and are when they are synced. A full disk may
            // have no space for the list of them, which only spares the next start some reading.
            let listed = self.checkpoint();
            if has_moved() {
                return listed;
            }
        }
        let Some(state) = self.index_mut().packs.remove(&number) else { return Ok(()) };
        self.totals.remove_pack_bytes(state.bytes);
        fs::remove_file(&state.pack.path).map_err(Error::io("remove", &state.pack.path))?;
        let _ = fs::remove_file(checkpoint::path(&self.root, number));
        Ok(())
    }
}

impl Store {
    /// What is stored and how much space it takes. From memory.
    pub fn usage(&self) -> Usage {
        let (index, totals) = (self.inner().index(), &self.inner().totals);
        Usage {
            blobs: index.len(),
            pack_bytes: totals.pack_bytes.load(Ordering::Relaxed),
            dead_pack_bytes: index.dead_bytes(),
            file_bytes: totals.file_bytes.load(Ordering::Relaxed),
            upload_bytes: *totals.reserved_bytes.lock().unwrap_or_else(PoisonError::into_inner),
            pinned: index.pinned(),
            cap_bytes: self.inner().options.cap_bytes,
        }
    }
}
