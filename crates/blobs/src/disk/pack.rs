//! A pack: an append-only file of records.
//!
//! A pack is read by anybody at any time and written by the writer alone. It knows where its records are
//! only while it is scanned; the index remembers.

use std::{
    fs::{self, File},
    io::{self, IoSliceMut},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use rustix::{
    buffer::spare_capacity,
    io::{ReadWriteFlags, pread, preadv2},
};

use super::record::{HEADER_BYTES, Header};
use crate::{Error, Result};

/// Where the first record begins.
pub(super) const FIRST_RECORD_AT: u64 = 64;
const MAGIC: [u8; 8] = *b"LESSOR-P";
const VERSION: u16 = 1;
const CRC_AT: usize = 60;
/// A scan reads the file in pieces of about this size.
const SCAN_BYTES: usize = 1 << 20;

pub struct Pack {
    pub number: u32,
    pub path: PathBuf,
    pub file: File,
}

impl Pack {
    pub fn path(root: &Path, number: u32) -> PathBuf {
        root.join("packs").join(format!("{number:08x}.pack"))
    }

    /// Makes an empty pack.
    pub fn create(root: &Path, number: u32, store: [u8; 16]) -> Result<Pack> {
        let path = Pack::path(root, number);
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(Error::io("create", &path))?;
        if let Err(error) = file.write_all_at(&head(number, store), 0) {
            // What is left of it must not stand in the way of the next try.
            let _ = fs::remove_file(&path);
            return Err(Error::io("write", &path)(error));
        }
        Ok(Pack { number, path, file })
    }

    /// Opens a pack of this store; `None` if it is none, or its head is damaged.
    pub fn open(root: &Path, number: u32, store: [u8; 16]) -> Result<Option<Pack>> {
        let path = Pack::path(root, number);
        let file =
            fs::OpenOptions::new().read(true).write(true).open(&path).map_err(Error::io("open", &path))?;
        let mut found = [0; FIRST_RECORD_AT as usize];
        match file.read_exact_at(&mut found, 0) {
            Ok(()) if found == head(number, store) => Ok(Some(Pack { number, path, file })),
            Ok(()) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }

    pub fn bytes(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(Error::io("measure", &self.path))?.len())
    }

    /// The data of the record at `offset`, if it is whole and right.
    pub fn read(&self, offset: u32, data_bytes: u32) -> Result<Option<(Header, Bytes)>> {
        let bytes = HEADER_BYTES + data_bytes as usize;
        let mut record = Vec::with_capacity(bytes);
        read_at(&self.file, &mut record, bytes, u64::from(offset)).map_err(Error::io("read", &self.path))?;
        Ok(self.check(record, offset, data_bytes))
    }

    /// Like `read`, but only if that takes no waiting for the disk; `None` says nothing about the record.
    pub fn read_cached(&self, offset: u32, data_bytes: u32) -> Option<Bytes> {
        let mut record = vec![0; HEADER_BYTES + data_bytes as usize];
        let mut into = [IoSliceMut::new(&mut record)];
        let count = preadv2(&self.file, &mut into, u64::from(offset), ReadWriteFlags::NOWAIT).ok()?;
        record.truncate(count);
        self.check(record, offset, data_bytes).map(|(_, data)| data)
    }

    fn check(&self, record: Vec<u8>, offset: u32, data_bytes: u32) -> Option<(Header, Bytes)> {
        let header = Header::decode(&record)?;
        let data = &record[HEADER_BYTES..];
        let is_right = header.data_bytes == data_bytes
            && (header.pack, header.offset) == (self.number, offset)
            && data.len() == data_bytes as usize
            && crc32c::crc32c(data) == header.data_crc;
        is_right.then(|| (header, Bytes::from(record).slice(HEADER_BYTES..)))
    }

    /// Shows every whole record from `start` on, and says where the last one ends. A record whose data is
    /// damaged is passed over; a head that is not one ends the scan, for nothing behind it can be trusted to
    /// be a record rather than a part of a blob.
    pub fn scan(&self, start: u64, mut found: impl FnMut(Header, &[u8]) -> Result<()>) -> Result<u64> {
        let mut window = Vec::with_capacity(SCAN_BYTES);
        let mut at = start;
        let mut used = 0;
        loop {
            let need = match Header::decode(&window[used..]) {
                Some(header) if (header.pack, u64::from(header.offset)) != (self.number, at) => {
                    return Ok(at);
                }
                Some(header) => {
                    let bytes = header.bytes() as usize;
                    if let Some(record) = window.get(used..used + bytes) {
                        let data = &record[HEADER_BYTES..];
                        if crc32c::crc32c(data) == header.data_crc {
                            found(header, data)?;
                        }
                        at += bytes as u64;
                        used += bytes;
                        continue;
                    }
                    bytes
                }
                None if window.len() - used >= HEADER_BYTES => return Ok(at),
                None => HEADER_BYTES,
            };
            window.drain(..used);
            used = 0;
            let next = at + window.len() as u64;
            let missing = need.max(SCAN_BYTES) - window.len();
            read_at(&self.file, &mut window, missing, next).map_err(Error::io("read", &self.path))?;
            if window.len() < need {
                return Ok(at);
            }
        }
    }
}

/// What the index knows of a pack.
pub struct PackState {
    pub pack: Arc<Pack>,
    /// Length of the file.
    pub bytes: u64,
    /// Bytes of records that the index points to.
    pub live_bytes: u64,
    /// Whether it holds records that say "removed". They count for as long as an older pack exists.
    pub removes: bool,
    /// Whether records of it were copied to another pack and a power loss could still take the copies.
    pub has_moved: bool,
}

impl PackState {
    pub fn new(pack: Arc<Pack>, bytes: u64) -> PackState {
        PackState { pack, bytes, live_bytes: 0, removes: false, has_moved: false }
    }

    /// Bytes that cleaning would free. The head of a pack is none of them: its successor has one as well.
    pub fn dead_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.live_bytes + FIRST_RECORD_AT)
    }
}

/// Appends up to `bytes` bytes of the file to `into`: fewer only at the end of the file.
pub(super) fn read_at(file: &File, into: &mut Vec<u8>, bytes: usize, mut offset: u64) -> io::Result<()> {
    let end = into.len() + bytes;
    into.reserve_exact(bytes);
    while into.len() < end {
        match pread(file, spare_capacity(into), offset) {
            Ok(0) => break,
            Ok(count) => offset += count as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The allocator may have given more capacity than was asked for.
    into.truncate(end);
    Ok(())
}

fn head(number: u32, store: [u8; 16]) -> [u8; FIRST_RECORD_AT as usize] {
    let mut bytes = [0; FIRST_RECORD_AT as usize];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&number.to_le_bytes());
    bytes[16..32].copy_from_slice(&store);
    let crc = crc32c::crc32c(&bytes[..CRC_AT]);
    bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::record::{Placement, Space},
        *,
    };

    const STORE: [u8; 16] = [9; 16];

    /// A pack of these contents, and the headers of its records.
    fn pack_of(root: &Path, contents: &[Vec<u8>]) -> (Pack, Vec<Header>) {
        fs::create_dir(root.join("packs")).unwrap();
        let pack = Pack::create(root, 1, STORE).unwrap();
        let mut at = FIRST_RECORD_AT;
        let headers = contents.iter().map(|content| {
            let header = Header {
                space: Space::Sha256,
                placement: Placement::Pack,
                data_bytes: content.len() as u32,
                data_crc: crc32c::crc32c(content),
                size: content.len() as u64,
                tenant: [3; 16],
                hash: [4; 32],
                pack: 1,
                offset: at as u32,
            };
            pack.file.write_all_at(&[&header.encode()[..], content].concat(), at).unwrap();
            at = header.end();
            header
        });
        let headers = headers.collect();
        (pack, headers)
    }

    fn scan(pack: &Pack) -> (u64, Vec<(Header, Vec<u8>)>) {
        let mut found = Vec::new();
        let end = pack.scan(FIRST_RECORD_AT, |header, data| {
            found.push((header, data.to_vec()));
            Ok(())
        });
        (end.unwrap(), found)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn a_scan_finds_every_record(contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 0..20)) {
            let root = tempfile::tempdir().unwrap();
            let (pack, headers) = pack_of(root.path(), &contents);
            let (end, found) = scan(&pack);
            prop_assert_eq!(end, pack.bytes().unwrap());
            prop_assert_eq!(found, headers.iter().copied().zip(contents.iter().cloned()).collect::<Vec<_>>());
            for (header, content) in headers.iter().zip(&contents) {
                let read = pack.read(header.offset, header.data_bytes).unwrap();
                prop_assert_eq!(read.map(|(_, data)| data.to_vec()), Some(content.clone()));
            }
        }

        /// Whatever was done to the file, a scan gives records that were written, in their order.
        #[test]
        fn a_scan_of_a_damaged_pack_gives_nothing_else(
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..12),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
            garbage: Vec<u8>,
        ) {
            let root = tempfile::tempdir().unwrap();
            let (pack, headers) = pack_of(root.path(), &contents);
            let bytes = pack.bytes().unwrap();
            for (at, byte) in damage {
                let at = FIRST_RECORD_AT + at.index((bytes - FIRST_RECORD_AT) as usize) as u64;
                pack.file.write_all_at(&[byte], at).unwrap();
            }
            pack.file.write_all_at(&garbage, bytes).unwrap();
            let (end, found) = scan(&pack);
            prop_assert!(end <= bytes + garbage.len() as u64);
            let written: Vec<_> = headers.iter().copied().zip(contents.iter().cloned()).collect();
            let mut rest = written.iter();
            prop_assert!(found.iter().all(|record| rest.any(|written| written == record)));
        }
    }
}
