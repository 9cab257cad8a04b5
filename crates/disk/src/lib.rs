//! File access as the ledger needs it, and nothing more.
//!
//! A [`Disk`] is one flat directory. The traits promise no more than POSIX does: what was written is
//! durable after [`File::sync_data`], what was created, renamed or removed after [`Disk::sync_dir`].
//! Both traits are small on purpose, so that the fake which loses unsynced data can be trusted.

use std::{io, sync::Arc};

mod read_only;
mod real;

pub use read_only::ReadOnlyDisk;
pub use real::RealDisk;

/// One directory with files in it.
pub trait Disk: Send + Sync {
    /// Takes the exclusive lock of this directory until the returned value is dropped. A lock that
    /// another holder has is `ErrorKind::WouldBlock`.
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>>;
    /// Creates a file that must not exist yet.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// The names of everything in the directory, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Renames a file and replaces the target if there is one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    fn exists(&self, name: &str) -> io::Result<bool>;
    /// Makes every create, rename and remove before this call durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// One open file. The methods take `&self`: readers and the writer share the handle.
pub trait File: Send + Sync {
    /// Reads up to `into.len()` bytes; 0 means the end of the file.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes up to `bytes.len()` bytes and says how many.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Fills an empty file with `bytes` real zeros.
    fn allocate(&self, bytes: u64) -> io::Result<()>;
    /// Makes every write before this call durable. After an error nothing is known about them, and
    /// calling it again would not help: the page cache may have marked the lost pages clean.
    fn sync_data(&self) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// Writes all of `bytes`, going on after short counts (D1).
pub fn write_all_at(file: &dyn File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until `into` is full or the file ends, and says how much was read.
pub fn read_up_to(file: &dyn File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Fills `into`, or fails with `UnexpectedEof`.
pub fn read_exact_at(file: &dyn File, into: &mut [u8], offset: u64) -> io::Result<()> {
    if read_up_to(file, into, offset)? == into.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Whether an error says that there is no space, which more space can cure.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Removes a file if it exists.
pub fn remove_if_present(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
