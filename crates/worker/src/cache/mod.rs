//! The cache of input files, which are linked into work directories.
//!
//! A cached file is named by its digest, complete and read-only. An executable and a plain variant of one content are two
//! files, because a link cannot differ from its file. A file that a command changed nevertheless is found by its size and
//! time before it is linked again. A file from before a restart is verified at its first use, because nothing is synced.
//! The least recently used files are evicted.

mod corruption_log;
pub(crate) mod index;
pub(crate) mod verify;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use blobs::Digest;
use files::LockError;
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, linkat, lstat, openat};
use rustix::io::Errno;
use tempfile::{NamedTempFile, TempPath};

use crate::Error;
use crate::executors::let_starts_pass;
use corruption_log::CorruptionLog;
pub(crate) use corruption_log::Generation;
use index::{Entry, Index};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub digest: Digest,
    pub is_executable: bool,
}

/// Identifies a file and its state: a change of its content changes its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified_s: i64,
    modified_ns: i64,
    mode: u32,
}

#[derive(Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
    index: Mutex<Index>,
    corruption: Mutex<CorruptionLog>,
    next_temporary: AtomicU64,
    evictions: AtomicU64,
    _lock: File,
}

/// The content does not have the digest under which it was fetched.
#[derive(Debug, thiserror::Error)]
#[error("the content is not what its digest says")]
pub(crate) struct WrongContent;

impl Cache {
    /// Opens the directory, which belongs to this cache alone, and lists its files. Blocking.
    pub(crate) fn open(directory: &Path, max_bytes: u64) -> Result<Cache, Error> {
        let failed = |error| Error::io(format!("the cache {}", directory.display()), error);
        fs::create_dir_all(directory).map_err(failed)?;
        let directory = directory.canonicalize().map_err(failed)?;
        // Foreign files are removed below, so the directory must be a cache.
        if !directory.join(LOCK).exists() && fs::read_dir(&directory).map_err(failed)?.next().is_some() {
            return Err(Error::Setup(format!(
                "{} is not empty and is no worker's cache: choose another place",
                directory.display()
            )));
        }
        let lock = files::lock(&directory.join(LOCK)).map_err(|error| match error {
            LockError::InUse => {
                Error::Setup(format!("another process uses the cache {}", directory.display()))
            }
            LockError::Io(error) => failed(error),
        })?;
        let temporary = directory.join(TEMPORARY);
        if temporary.exists() {
            fs::remove_dir_all(&temporary).map_err(failed)?;
        }
        fs::create_dir(&temporary).map_err(failed)?;
        for shard in 0..=u8::MAX {
            fs::create_dir_all(directory.join(format!("{shard:02x}"))).map_err(failed)?;
        }
        let index = Index::scan(&directory, max_bytes).map_err(failed)?;
        Ok(Cache {
            directory,
            index: Mutex::new(index),
            corruption: Mutex::default(),
            next_temporary: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            _lock: lock,
        })
    }

    pub(crate) fn max_bytes(&self) -> u64 {
        self.index.lock().max_bytes()
    }

    /// Whether all of the contents are here and verified. Not blocking.
    pub(crate) fn has_all(&self, keys: &[Key]) -> bool {
        let mut index = self.index.lock();
        keys.iter().all(|key| index.stamp(key).is_some())
    }

    /// Whether none of the contents was evicted. Not blocking, and no use of them.
    pub(crate) fn holds_all(&self, keys: &[Key]) -> bool {
        let index = self.index.lock();
        keys.iter().all(|key| index.peek(key).is_some())
    }

    /// The contents that are not here. One that is here in its other variant is copied. Blocking.
    pub(crate) fn missing(&self, keys: &[Key]) -> io::Result<Vec<Key>> {
        let mut missing = Vec::new();
        for key in keys {
            if !self.is_there(key) && !self.copy_variant(key)? {
                missing.push(*key);
            }
        }
        Ok(missing)
    }

    pub(crate) fn add_bytes(&self, key: &Key, content: &[u8]) -> io::Result<()> {
        if Digest::of(key.digest.function, content) != key.digest {
            return Err(io::Error::other(WrongContent));
        }
        let (mut file, path) = self.temporary()?;
        file.write_all(content)?;
        self.keep(key, file, path)
    }

    /// A new, empty file that may become a content.
    pub(crate) fn temporary(&self) -> io::Result<(File, TempPath)> {
        Ok(NamedTempFile::new_in(self.directory.join(TEMPORARY))?.into_parts())
    }

    /// Verifies and adds a content that was written into a temporary file. Blocking.
    pub(crate) fn add_file(&self, key: &Key, path: TempPath) -> io::Result<()> {
        let file = File::open(&path)?;
        if verify::is_right(&file, &key.digest)? {
            self.keep(key, file, path)
        } else {
            Err(io::Error::other(WrongContent))
        }
    }

    /// Links a content into a directory. Returns whether it is still here and unchanged. Blocking.
    pub(crate) fn link(&self, key: &Key, into: impl AsFd, name: &str) -> io::Result<bool> {
        let path = self.path(key);
        let Some(stamp) = self.index.lock().stamp(key) else { return Ok(false) };
        if stamp_of(&path).ok() != Some(stamp) {
            self.forget(key, &stamp);
            return Ok(false);
        }
        match linkat(CWD, &path, &into, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            // A file can have only so many names, and none on another disk.
            Err(Errno::MLINK | Errno::XDEV) => self.copy(key, into, name, mode(key)),
            // The directory may be what is gone.
            Err(Errno::NOENT) if stamp_of(&path).is_err() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a file elsewhere is the cached file itself, unchanged. Counts as a use.
    pub(crate) fn is_linked(&self, key: &Key, found: &Stat) -> bool {
        self.index.lock().stamp(key) == Some(Stamp::of(found))
    }

    /// Copies a content into a directory, for a file with its own mode or time. Returns whether it is still here. Blocking.
    pub(crate) fn copy(&self, key: &Key, into: impl AsFd, name: &str, mode: u32) -> io::Result<bool> {
        let mut from = match File::open(self.path(key)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Otherwise it would not be fetched again.
                let known = self.index.lock().peek(key);
                known.iter().for_each(|stamp| self.forget(key, stamp));
                return Ok(false);
            }
            opened => opened?,
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut to = File::from(openat(into, name, flags, Mode::from_raw_mode(0o600))?);
        io::copy(&mut from, &mut to)?;
        to.set_permissions(fs::Permissions::from_mode(mode))?;
        drop(to);
        if mode & 0o111 != 0 {
            let_starts_pass();
        }
        Ok(true)
    }

    /// The generation after which damage concerns a user that starts now.
    pub(crate) fn now(&self) -> Generation {
        self.corruption.lock().now()
    }

    /// The contents that were found to be changed since a generation, by this check or another. They are removed.
    /// Blocking.
    pub(crate) fn changed(&self, keys: &[Key], since: Generation) -> Vec<Key> {
        for key in keys {
            let stamp = self.index.lock().peek(key);
            if let Some(stamp) = stamp.filter(|stamp| stamp_of(&self.path(key)).ok() != Some(*stamp)) {
                self.forget(key, &stamp);
            }
        }
        let damage = self.corruption.lock();
        keys.iter().filter(|key| damage.is_found(key, since)).copied().collect()
    }

    /// Rises with each eviction.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Evicts this many bytes, the least recently used first. A file that is linked elsewhere uses its space until the
    /// links are removed too. Blocking.
    pub(crate) fn evict(&self, bytes: u64) {
        let evicted = {
            let mut index = self.index.lock();
            let to_bytes = index.bytes().saturating_sub(bytes);
            index.shrink(to_bytes, None)
        };
        self.remove(&evicted);
    }

    fn remove(&self, evicted: &[(Key, Stamp)]) {
        for (key, stamp) in evicted {
            let number = self.next_temporary.fetch_add(1, Ordering::Relaxed);
            let aside = self.directory.join(TEMPORARY).join(number.to_string());
            let index = self.index.lock();
            // A content that was added again stays.
            let is_moved = index.peek(key).is_none() && fs::rename(self.path(key), &aside).is_ok();
            drop(index);
            if is_moved {
                // After this, the change could no longer be found.
                if stamp_of(&aside).is_ok_and(|found| found != *stamp) {
                    self.corruption.lock().found(*key);
                }
                discard(&aside);
            }
        }
        if !evicted.is_empty() {
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_there(&self, key: &Key) -> bool {
        let entry = self.index.lock().touch(key);
        match entry {
            None => false,
            Some(entry) if entry.is_verified => true,
            // It is from before the last start and may be anything.
            Some(entry) => {
                let path = self.path(key);
                let is_right = stamp_of(&path).ok() == Some(entry.stamp)
                    && File::open(&path)
                        .and_then(|file| verify::is_right(&file, &key.digest))
                        .unwrap_or(false);
                if is_right {
                    self.index.lock().verified(key)
                } else {
                    self.forget(key, &entry.stamp)
                }
                is_right
            }
        }
    }

    fn copy_variant(&self, key: &Key) -> io::Result<bool> {
        let other = Key { is_executable: !key.is_executable, ..*key };
        if !self.is_there(&other) {
            return Ok(false);
        }
        let (mut to, path) = self.temporary()?;
        io::copy(&mut File::open(self.path(&other))?, &mut to)?;
        drop(to);
        match self.add_file(key, path) {
            Ok(()) => Ok(true),
            // The other variant was changed meanwhile.
            Err(error) if is_wrong_content(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Adds a verified file.
    fn keep(&self, key: &Key, file: File, path: TempPath) -> io::Result<()> {
        file.set_permissions(fs::Permissions::from_mode(mode(key)))?;
        // The kernel's time of a change is often that of its last tick, which a change by a command that starts at once
        // would not alter. This time lies between two ticks.
        file.set_modified(SystemTime::now())?;
        let stamp = Stamp::of(&fstat(&file)?);
        drop(file);
        if key.is_executable {
            let_starts_pass();
        }
        // Under the lock of the index, so that no file is seen with the stamp of another.
        let mut index = self.index.lock();
        if let Some(known) = index.stamp(key) {
            // Another fetch has added it meanwhile, and it may be linked.
            match stamp_of(&self.path(key)) {
                Ok(found) if found == known => return Ok(()),
                Ok(_) => self.corruption.lock().found(*key),
                Err(_) => {}
            }
        }
        path.persist(self.path(key))?;
        let evicted = index.add(*key, Entry { stamp, is_verified: true });
        drop(index);
        self.remove(&evicted);
        Ok(())
    }

    /// Removes a content that was changed, and logs the change for others that use it.
    fn forget(&self, key: &Key, stamp: &Stamp) {
        let mut index = self.index.lock();
        if index.peek(key) != Some(*stamp) {
            return; // It was evicted or added again.
        }
        let path = self.path(key);
        if path.symlink_metadata().is_ok() {
            self.corruption.lock().found(*key);
        }
        index.remove(key);
        discard(&path);
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.directory.join(index::file_name(key))
    }
}

const TEMPORARY: &str = "temporary";
const LOCK: &str = "lock";

pub(crate) fn is_wrong_content(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<WrongContent>())
}

/// Read-only, for everybody.
fn mode(key: &Key) -> u32 {
    if key.is_executable { 0o555 } else { 0o444 }
}

fn stamp_of(path: &Path) -> io::Result<Stamp> {
    Ok(Stamp::of(&lstat(path)?))
}

impl Stamp {
    fn of(about: &Stat) -> Stamp {
        Stamp {
            device: about.st_dev,
            inode: about.st_ino,
            size: about.st_size as u64,
            modified_s: about.st_mtime,
            modified_ns: about.st_mtime_nsec as i64,
            mode: about.st_mode,
        }
    }
}

/// A file that stays costs space until the next start removes it.
fn discard(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "a file of the cache could not be removed");
    }
}

#[cfg(test)]
mod tests;
