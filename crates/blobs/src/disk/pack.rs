//! A pack: an append-only file of records.
//!
//! A pack is read by anybody at any time and written by the writer alone. It knows where its records are
//! only while it is scanned; the index remembers.

use std::{
    fs::{self, File},
    io::{self, IoSliceMut},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use rustix::{
    buffer::spare_capacity,
    io::{ReadWriteFlags, pread, preadv2},
};

use super::record::{HEADER_BYTES, Header};
use crate::{Error, Result};

/// Where the first record begins.
pub const FIRST_RECORD_AT: u64 = 64;
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
    /// be a record rather than a part of somebody's content.
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

/// Appends up to `bytes` bytes of the file to `into`: fewer only at the end of the file.
pub fn read_at(file: &File, into: &mut Vec<u8>, bytes: usize, mut offset: u64) -> io::Result<()> {
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
    // The allocator may have given more room than was asked for.
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
