//! The only writer of the store: appends to the newest pack and updates the index.
//!
//! A record is in the page cache before the index points to it, so a killed process loses nothing that it
//! has acknowledged. Nothing is synced here; that is the checkpoint's business.

use std::{fs, os::unix::fs::FileExt, path::PathBuf, sync::Arc, time::SystemTime};

use super::{
    checkpoint,
    index::{Key, Taken},
    inner::Inner,
    options::{CHECKPOINT_FILE_BYTES, GATHER_BYTES, MAX_PENDING_RECORDS},
    pack::{FIRST_RECORD_AT, Pack, PackState},
    record::{HEADER_BYTES, Header, Placement, Space},
};
use crate::{Digest, Error, HASH_BYTES, Result};

pub struct Writer {
    pub pack: Arc<Pack>,
    /// Where the next record goes.
    pub end: u64,
    /// Records that no checkpoint lists yet, in order.
    pub pending: Vec<Header>,
    pub pending_file_bytes: u64,
    /// Whether a write failed and could not be undone. What is behind the end then must never come to lie
    /// behind a later record, so nothing more is written to this pack.
    is_spoilt: bool,
    buffer: Vec<u8>,
}

/// Something to store.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    pub tenant: [u8; 16],
    pub space: Space,
    pub hash: [u8; HASH_BYTES],
    pub placement: Placement,
    pub size: u64,
    pub data: &'a [u8],
}

impl Item<'_> {
    pub fn bytes(&self) -> u64 {
        (HEADER_BYTES + self.data.len()) as u64
    }
}

impl Writer {
    pub fn new(pack: Arc<Pack>, end: u64) -> Writer {
        Writer { pack, end, pending: Vec::new(), pending_file_bytes: 0, is_spoilt: false, buffer: Vec::new() }
    }

    /// Appends records and points the index to them. All of them or, after an error, those up to a point.
    pub fn append(&mut self, inner: &Inner, items: &[Item<'_>]) -> Result<()> {
        let mut rest = items;
        while !rest.is_empty() {
            if self.is_spoilt {
                self.roll(inner)?;
            }
            let mut bytes = 0;
            let space = inner.options.pack_bytes.saturating_sub(self.end);
            let fits = |item: &&Item<'_>| {
                bytes += item.bytes();
                bytes <= space && bytes <= GATHER_BYTES as u64
            };
            let count = rest.iter().take_while(fits).count();
            if count == 0 && self.end > FIRST_RECORD_AT && rest[0].bytes() > space {
                self.roll(inner)?;
                continue;
            }
            let (now, later) = rest.split_at(count.max(1));
            self.append_gathered(inner, now)?;
            rest = later;
        }
        Ok(())
    }

    fn append_gathered(&mut self, inner: &Inner, items: &[Item<'_>]) -> Result<()> {
        let first = self.pending.len();
        self.buffer.clear();
        for item in items {
            let header = Header {
                space: item.space,
                placement: item.placement,
                data_bytes: item.data.len() as u32,
                data_crc: crc32c::crc32c(item.data),
                size: item.size,
                tenant: item.tenant,
                hash: item.hash,
                pack: self.pack.number,
                offset: (self.end + self.buffer.len() as u64) as u32,
            };
            self.buffer.extend_from_slice(&header.encode());
            self.buffer.extend_from_slice(item.data);
            self.pending.push(header);
        }
        if let Err(error) = self.write_buffer(inner) {
            self.pending.truncate(first);
            return Err(error);
        }
        let mut index = inner.index_mut();
        if let Some(state) = index.packs.get_mut(&self.pack.number) {
            state.bytes = self.end;
        }
        for header in &self.pending[first..] {
            match header.placement {
                Placement::Removed => {
                    if let Some(state) = index.packs.get_mut(&self.pack.number) {
                        state.removes = true;
                    }
                }
                Placement::File => {
                    self.pending_file_bytes += header.size;
                    inner.totals.add_file_bytes(header.size);
                    index.insert(header);
                }
                Placement::Pack => {
                    index.insert(header);
                }
            }
        }
        drop(index);
        // A large record leaves a large buffer behind.
        self.buffer.shrink_to(GATHER_BYTES);
        if self.wants_checkpoint() {
            inner.signal.wake();
        }
        Ok(())
    }

    /// Copies a record of an old pack to the newest, if the index still points to it.
    pub fn relocate(&mut self, inner: &Inner, header: &Header, data: &[u8]) -> Result<()> {
        if !inner.index().is_current(header) {
            return Ok(());
        }
        let is_full = self.end + header.bytes() > inner.options.pack_bytes && self.end > FIRST_RECORD_AT;
        if is_full || self.is_spoilt {
            self.roll(inner)?;
        }
        let moved = Header { pack: self.pack.number, offset: self.end as u32, ..*header };
        self.buffer.clear();
        self.buffer.extend_from_slice(&moved.encode());
        self.buffer.extend_from_slice(data);
        self.write_buffer(inner)?;
        self.pending.push(moved);
        let mut index = inner.index_mut();
        if let Some(state) = index.packs.get_mut(&self.pack.number) {
            state.bytes = self.end;
        }
        index.relocate(&moved);
        Ok(())
    }

    /// Writes the buffer at the end, all or nothing.
    fn write_buffer(&mut self, inner: &Inner) -> Result<()> {
        if let Err(error) = self.pack.file.write_all_at(&self.buffer, self.end) {
            self.is_spoilt = self.pack.file.set_len(self.end).is_err();
            let error = Error::io("write", &self.pack.path)(error);
            inner.totals.note_failure(&error);
            return Err(error);
        }
        let bytes = self.buffer.len() as u64;
        self.end += bytes;
        inner.totals.add_pack_bytes(bytes);
        Ok(())
    }

    /// Continues in a new pack.
    pub fn roll(&mut self, inner: &Inner) -> Result<()> {
        let number = self.pack.number + 1;
        let pack = Arc::new(Pack::create(&inner.root, number, inner.store_dir.id)?);
        inner.index_mut().packs.insert(number, PackState::new(pack.clone(), FIRST_RECORD_AT));
        inner.totals.add_pack_bytes(FIRST_RECORD_AT);
        self.pack = pack;
        self.end = FIRST_RECORD_AT;
        self.is_spoilt = false;
        inner.signal.wake();
        Ok(())
    }

    /// Takes something out of the store at once and for good, because this record of it is damaged or
    /// unwanted. If another record stands for the name by now, nothing happens.
    pub fn remove(&mut self, inner: &Inner, key: &Key, position: (u32, u32)) -> Result<()> {
        if inner.index().position(key) != Some(position) {
            return Ok(());
        }
        let taken = inner.index_mut().remove(key);
        let Some(taken) = taken else { return Ok(()) };
        if let Some(path) = self.forget(inner, &taken) {
            let _ = fs::remove_file(path);
        }
        self.bury(inner, key)
    }

    /// Records that earlier records of this name no longer count.
    pub fn bury(&mut self, inner: &Inner, key: &Key) -> Result<()> {
        let tenant = inner.index().fingerprint(key.tenant);
        let (space, hash) = (key.space, key.hash);
        self.append(inner, &[Item { tenant, space, hash, placement: Placement::Removed, size: 0, data: &[] }])
    }

    /// Gives up the file of an entry that has left the index. The path that is returned is the caller's to
    /// remove, when no lock is held: freeing a large file takes a while.
    pub fn forget(&mut self, inner: &Inner, taken: &Taken) -> Option<PathBuf> {
        if taken.placement != Placement::File {
            return None;
        }
        inner.totals.remove_file_bytes(taken.size);
        let (from, to) = (inner.file_path_of(&taken.key), inner.temp_path());
        match fs::rename(&from, &to) {
            Ok(()) => Some(to),
            Err(error) => {
                tracing::warn!(path = %from.display(), %error, "a blob's file could not be removed");
                None
            }
        }
    }

    /// Makes the file of a large blob visible, with its checksums. `temp` is gone afterwards.
    pub fn commit_file(
        &mut self,
        inner: &Inner,
        tenant: [u8; 16],
        digest: &Digest,
        temp: &std::path::Path,
        checksums: &[u8],
    ) -> Result<()> {
        let path = inner.file_path(tenant, digest);
        inner.rename_into_place(temp, &path)?;
        let item = Item {
            tenant,
            space: digest.function.into(),
            hash: digest.hash.0,
            placement: Placement::File,
            size: digest.size,
            data: checksums,
        };
        self.append(inner, &[item]).inspect_err(|_| {
            let _ = fs::remove_file(&path);
        })
    }

    pub fn wants_checkpoint(&self) -> bool {
        self.pending_file_bytes >= CHECKPOINT_FILE_BYTES
            || self.pending.len() >= MAX_PENDING_RECORDS
            || self.pending.first().is_some_and(|header| header.pack != self.pack.number)
    }
}

impl Inner {
    /// Lists all records so far beside their packs, after making sure that a power loss cannot take them.
    /// The caller holds `housekeeping`.
    pub fn checkpoint(&self) -> Result<()> {
        let (pending, file_bytes) = {
            let mut writer = self.writer();
            (std::mem::take(&mut writer.pending), std::mem::take(&mut writer.pending_file_bytes))
        };
        let synced_at = SystemTime::now();
        let listed = self.sync().and_then(|()| {
            self.index_mut().packs.values_mut().for_each(|state| state.has_moved = false);
            self.list(&pending, synced_at)
        });
        if listed.is_err() {
            // They are tried again with the next ones.
            let mut writer = self.writer();
            let later = std::mem::replace(&mut writer.pending, pending);
            writer.pending.extend(later);
            writer.pending_file_bytes += file_bytes;
        }
        listed
    }

    fn list(&self, pending: &[Header], synced_at: SystemTime) -> Result<()> {
        for headers in pending.chunk_by(|one, next| one.pack == next.pack) {
            let pack = headers[0].pack;
            // A pack may have been cleaned away since.
            if self.index().packs.contains_key(&pack) {
                checkpoint::append(&self.root, pack, headers, synced_at)?;
            }
        }
        Ok(())
    }
}
