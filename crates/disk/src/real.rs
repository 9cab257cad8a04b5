//! The operating system's files.
//!
//! Files and directories are created for the owner alone. Nothing here retries a failed sync.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Disk, File};

/// The file that carries the advisory lock. It is never removed: a lock on a removed file protects nothing.
const LOCK_NAME: &str = "LOCK";
/// Zeros are written in pieces of this size.
const ZERO_CHUNK_BYTES: usize = 1 << 20;

/// A directory of the operating system.
pub struct RealDisk {
    path: PathBuf,
    /// Kept open for `sync_dir`, which must work when descriptors have run out.
    directory: fs::File,
}

impl RealDisk {
    /// Opens an existing directory.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let directory = fs::File::open(&path)?;
        if !directory.metadata()?.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok(Self { path, directory })
    }

    /// Opens a directory, and makes it (and its parents) when it is missing.
    pub fn create(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        files::create_dir_durably(&path, 0o700)?;
        Self::open(path)
    }
}

impl Disk for RealDisk {
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        Ok(Box::new(files::lock(&self.path.join(LOCK_NAME))?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.path.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(self.path.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        list(&self.path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        fs::exists(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.directory.sync_all()
    }
}

pub(super) fn list(path: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

pub(super) struct RealFile(pub(super) fs::File);

impl File for RealFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(into, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let zeros = vec![0; ZERO_CHUNK_BYTES.min(bytes as usize)];
        let mut offset = 0;
        while offset < bytes {
            let count = (bytes - offset).min(zeros.len() as u64);
            super::write_all_at(self, &zeros[..count as usize], offset)?;
            // One flush of the whole file at the end would make the syncs of every other file wait for it.
            self.0.sync_data()?;
            offset += count;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}
