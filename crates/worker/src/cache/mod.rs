//! Contents that were fetched once, as files to be linked into work directories.
//!
//! A file here is named by its digest, is whole and right, and is read-only; one and the same content is there once
//! executable and once not, because a link cannot differ from its file. What a command nevertheless changed is found
//! by its size and time before it is handed out again. What was there before a restart is read and checked when it is
//! first asked for, since nothing here is synced. The least recently used goes when there is too much.

mod corruption_log;
mod index;
pub(crate) mod verify;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use blobs::Digest;
use files::LockError;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, linkat, lstat, openat};
use rustix::io::Errno;

use crate::Error;
use crate::executors::let_starts_pass;
use corruption_log::CorruptionLog;
pub(crate) use corruption_log::Generation;
use index::{Entry, Index};

/// A content and whether it can be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub digest: Digest,
    pub is_executable: bool,
}

/// Which file it is, and how it was left; a change of its content changes this too.
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
    /// How often contents had to go.
    evictions: AtomicU64,
    /// Unlocked when it is dropped, also by the end of the process.
    _lock: File,
}

/// Bytes that came under a digest are not those that it names.
#[derive(Debug, thiserror::Error)]
#[error("the content is not what its digest says")]
pub(crate) struct WrongContent;

impl Cache {
    /// Opens the directory, which is this cache's alone, and learns what is there. Blocking.
    pub(crate) fn open(directory: &Path, max_bytes: u64) -> Result<Cache, Error> {
        let failed = |error| Error::io(format!("the cache {}", directory.display()), error);
        fs::create_dir_all(directory).map_err(failed)?;
        let directory = directory.canonicalize().map_err(failed)?;
        // What is in the way of a cache is removed, so it has to be one.
        if !directory.join(LOCK).exists() && fs::read_dir(&directory).map_err(failed)?.next().is_some() {
            let told = directory.display();
            return Err(Error::Setup(format!(
                "{told} is not empty and is no worker's cache: choose another place"
            )));
        }
        let lock = files::lock(&directory.join(LOCK)).map_err(|error| match error {
            LockError::InUse => {
                Error::Setup(format!("another process uses the cache {}", directory.display()))
            }
            LockError::Io(error) => failed(error),
        })?;
        let temporary = directory.join(TEMPORARY);
        match fs::remove_dir_all(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        fs::create_dir(&temporary).map_err(failed)?;
        for shard in 0..=u8::MAX {
            match fs::create_dir(directory.join(format!("{shard:02x}"))) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
                _ => {}
            }
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

    /// Whether all of the contents are here for sure. Not blocking; what is unsure has to be looked at.
    pub(crate) fn has_all(&self, keys: &[Key]) -> bool {
        let mut index = self.index();
        keys.iter().all(|key| index.stamp(key).is_some())
    }

    /// Whether none of the contents had to go. Not blocking, and uses none of them.
    pub(crate) fn holds_all(&self, keys: &[Key]) -> bool {
        let index = self.index();
        keys.iter().all(|key| index.peek(key).is_some())
    }

    /// Those of the contents that are not here. One that is here in its other variant is copied. Blocking.
    pub(crate) fn missing(&self, keys: &[Key]) -> io::Result<Vec<Key>> {
        let mut missing = Vec::new();
        for key in keys {
            if !self.is_there(key) && !self.copy_variant(key)? {
                missing.push(*key);
            }
        }
        Ok(missing)
    }

    /// Adds a content that is in memory. Blocking.
    pub(crate) fn add_bytes(&self, key: &Key, content: &[u8]) -> io::Result<()> {
        if Digest::of(key.digest.function, content) != key.digest {
            return Err(io::Error::other(WrongContent));
        }
        let (mut file, path) = self.temporary()?;
        file.write_all(content).and_then(|()| self.keep(key, file, &path)).inspect_err(|_| discard(&path))
    }

    /// A new, empty file that may become a content.
    pub(crate) fn temporary(&self) -> io::Result<(File, PathBuf)> {
        let path = self.temporary_path();
        let file = File::options().create_new(true).read(true).write(true).mode(0o600).open(&path)?;
        Ok((file, path))
    }

    /// Adds a content that was written into a temporary file, once it is found to be right. Blocking.
    pub(crate) fn add_file(&self, key: &Key, path: &Path) -> io::Result<()> {
        let add = || {
            let file = File::open(path)?;
            if verify::is_right(&file, &key.digest)? {
                self.keep(key, file, path)
            } else {
                Err(io::Error::other(WrongContent))
            }
        };
        add().inspect_err(|_| discard(path))
    }

    /// Links a content into a directory. Says whether it is still here and unchanged. Blocking.
    pub(crate) fn link(&self, key: &Key, into: impl AsFd, name: &str) -> io::Result<bool> {
        let path = self.path(key);
        let Some(stamp) = self.index().stamp(key) else { return Ok(false) };
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

    /// Whether a file that was found somewhere is the very file that would be linked there, and unchanged. It is about to
    /// be used.
    pub(crate) fn is_linked(&self, key: &Key, found: &Stat) -> bool {
        self.index().stamp(key) == Some(Stamp::of(found))
    }

    /// Copies a content into a directory, for a file that has to differ from others. Says whether it is still here.
    /// Blocking.
    pub(crate) fn copy(&self, key: &Key, into: impl AsFd, name: &str, mode: u32) -> io::Result<bool> {
        let mut from = match File::open(self.path(key)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Otherwise nobody would fetch it again.
                let known = self.index().peek(key);
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

    /// From when on whoever uses contents wants to hear of damage to them.
    pub(crate) fn now(&self) -> Generation {
        self.corruption().now()
    }

    /// Those of the contents that were changed and not found to be before that moment, by this look or by another; they
    /// are thrown away. Blocking.
    pub(crate) fn changed(&self, keys: &[Key], since: Generation) -> Vec<Key> {
        for key in keys {
            let stamp = self.index().peek(key);
            if let Some(stamp) = stamp.filter(|stamp| stamp_of(&self.path(key)).ok() != Some(*stamp)) {
                self.forget(key, &stamp);
            }
        }
        let damage = self.corruption();
        keys.iter().filter(|key| damage.is_found(key, since)).copied().collect()
    }

    /// Changes when contents had to go.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Gives up so many bytes of what was not used for longest, as far as there are as many. What is linked elsewhere
    /// takes up its space until it is gone there too. Blocking.
    pub(crate) fn make_room(&self, bytes: u64) {
        let gone = {
            let mut index = self.index();
            let to_bytes = index.bytes().saturating_sub(bytes);
            index.shrink(to_bytes, None)
        };
        self.evict(&gone);
    }

    fn evict(&self, gone: &[(Key, Stamp)]) {
        for (key, stamp) in gone {
            let aside = self.temporary_path();
            let index = self.index();
            // One that has come anew stays.
            let is_moved = index.peek(key).is_none() && fs::rename(self.path(key), &aside).is_ok();
            drop(index);
            if is_moved {
                // Nobody could tell any more.
                if stamp_of(&aside).is_ok_and(|found| found != *stamp) {
                    self.corruption().found(*key);
                }
                discard(&aside);
            }
        }
        if !gone.is_empty() {
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_there(&self, key: &Key) -> bool {
        let entry = self.index().touch(key);
        match entry {
            None => false,
            Some(entry) if entry.is_verified => true,
            // It stems from before the last start, and may be anything.
            Some(entry) => {
                let path = self.path(key);
                let is_right = stamp_of(&path).ok() == Some(entry.stamp)
                    && File::open(&path)
                        .and_then(|file| verify::is_right(&file, &key.digest))
                        .unwrap_or(false);
                if is_right {
                    self.index().verified(key)
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
        let mut copy = || io::copy(&mut File::open(self.path(&other))?, &mut to).map(drop);
        copy().inspect_err(|_| discard(&path))?;
        drop(to);
        match self.add_file(key, &path) {
            Ok(()) => Ok(true),
            // The other one was changed meanwhile.
            Err(error) if is_wrong_content(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Puts a file that is whole and right into its place.
    fn keep(&self, key: &Key, file: File, path: &Path) -> io::Result<()> {
        file.set_permissions(fs::Permissions::from_mode(mode(key)))?;
        // The kernel's own time of a change is often that of its last tick, which a command that begins at once would
        // leave as it is; this one lies between two ticks.
        file.set_modified(SystemTime::now())?;
        let stamp = Stamp::of(&fstat(&file)?);
        drop(file);
        if key.is_executable {
            let_starts_pass();
        }
        // Only the index says that a file is here, so that nobody sees one file under the other's stamp.
        let mut index = self.index();
        if let Some(known) = index.stamp(key) {
            // Somebody else has brought it meanwhile, and perhaps linked it.
            match stamp_of(&self.path(key)) {
                Ok(found) if found == known => {
                    discard(path);
                    return Ok(());
                }
                Ok(_) => self.corruption().found(*key),
                Err(_) => {}
            }
        }
        fs::rename(path, self.path(key))?;
        let too_much = index.add(*key, Entry { stamp, is_verified: true });
        drop(index);
        self.evict(&too_much);
        Ok(())
    }

    /// Throws a content away that is not as it was left, and remembers that for others who use it.
    fn forget(&self, key: &Key, stamp: &Stamp) {
        let mut index = self.index();
        if index.peek(key) != Some(*stamp) {
            return; // It has gone, or come anew.
        }
        let path = self.path(key);
        if path.symlink_metadata().is_ok() {
            self.corruption().found(*key);
        }
        index.remove(key);
        discard(&path);
    }

    fn temporary_path(&self) -> PathBuf {
        let number = self.next_temporary.fetch_add(1, Ordering::Relaxed);
        self.directory.join(TEMPORARY).join(number.to_string())
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.directory.join(index::file_name(key))
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn corruption(&self) -> MutexGuard<'_, CorruptionLog> {
        self.corruption.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Something that is left over costs room, and is found at the next start.
fn discard(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "a file of the cache could not be removed");
    }
}

#[cfg(test)]
mod tests;
