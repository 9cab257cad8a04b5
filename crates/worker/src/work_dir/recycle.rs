//! Reuses directories for later attempts. To create and remove them for each attempt costs more than most commands,
//! because a file system searches for inodes that were not used recently.
//!
//! A directory is reused only if it is like new: empty, with its original owner, mode and attributes, and so is its root.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::cleanup;
use crate::dirfd::Directory;

const ROOT: &str = "root";
const MODE: u32 = 0o755;

pub(super) fn root(path: &Path) -> PathBuf {
    path.join(ROOT)
}

pub(super) fn make(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.mode(MODE);
    builder.create(path)?;
    builder.create(root(path))
}

/// Prevents the reuse of a directory, given its root, because a process may still write there.
pub(crate) fn spoil(root: &Path) {
    if let Some(path) = root.parent()
        && let Err(error) = fs::set_permissions(path, fs::Permissions::from_mode(0o700))
    {
        tracing::error!(path = %path.display(), %error, "a directory may be used again");
    }
}

/// Clears a directory. Returns whether it is like new. Blocking.
pub(super) fn is_as_new(path: &Path) -> bool {
    let check = || -> io::Result<bool> {
        let root = root(path);
        if !is_as_new_around_its_root(path)? {
            return Ok(false);
        }
        for entry in fs::read_dir(&root)? {
            remove_entry(&entry?)?;
        }
        // A process that is still dying may have added a file meanwhile.
        Ok(fs::read_dir(&root)?.next().is_none())
    };
    check().unwrap_or(false)
}

/// Whether a directory is like new, apart from the content of its root.
pub(super) fn is_as_new_around_its_root(path: &Path) -> io::Result<bool> {
    if !is_untouched(path)? || !is_untouched(&root(path))? {
        return Ok(false);
    }
    for entry in fs::read_dir(path)? {
        if entry?.file_name() != ROOT {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_untouched(path: &Path) -> io::Result<bool> {
    Ok(Directory::open(path)?.is_as_made()?)
}

fn remove_entry(entry: &fs::DirEntry) -> io::Result<()> {
    if entry.file_type()?.is_dir() { cleanup::remove(&entry.path()) } else { fs::remove_file(entry.path()) }
}
