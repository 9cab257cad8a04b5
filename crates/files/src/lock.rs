//! Advisory locks that keep a second process out of a directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

#[derive(Debug)]
pub enum LockError {
    /// Another process, or another handle of this one, holds the lock.
    InUse,
    Io(io::Error),
}

/// Takes the exclusive lock on a file, which is created if it is missing, and keeps the content of the file. Does not
/// wait. The lock is released when the file is closed, also by the end of the process.
///
/// The file must never be removed: a lock on a removed file protects nothing.
pub fn lock(path: &Path) -> Result<File, LockError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path).map_err(LockError::Io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LockError::InUse),
        Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
    }
}

impl From<LockError> for io::Error {
    fn from(error: LockError) -> io::Error {
        match error {
            LockError::InUse => io::ErrorKind::WouldBlock.into(),
            LockError::Io(error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_finds_the_file_in_use_until_the_first_is_released() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        std::fs::write(&path, "kept").unwrap();
        let first = lock(&path).unwrap();
        assert!(matches!(lock(&path), Err(LockError::InUse)));
        drop(first);
        assert!(lock(&path).is_ok());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
        assert!(matches!(lock(&dir.path().join("missing/LOCK")), Err(LockError::Io(_))));
    }
}
