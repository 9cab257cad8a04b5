//! Directories that are used for one attempt after the other. To make and remove them for each costs more than most
//! commands themselves: a file system searches for inodes that were not used a moment ago.
//!
//! One is used again only if nothing tells it from a new one: what was in it is gone, and neither it nor its root has
//! another owner, mode or attribute than it was made with.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::remove;
use crate::dirfd::Directory;

/// The one entry of the directory.
const ROOT: &str = "root";
/// What both are made with.
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

/// Makes sure that a directory is not used again, given its root: somebody may still write there.
pub(crate) fn spoil(root: &Path) {
    if let Some(path) = root.parent()
        && let Err(error) = fs::set_permissions(path, fs::Permissions::from_mode(0o700))
    {
        tracing::error!(path = %path.display(), %error, "a directory may be used again");
    }
}

/// Clears a directory, and says whether it can be used as a new one. Blocking.
pub(super) fn is_as_new(path: &Path) -> bool {
    let check = || -> io::Result<bool> {
        let root = root(path);
        if !is_as_new_around_its_root(path)? {
            return Ok(false);
        }
        for entry in fs::read_dir(&root)? {
            remove_entry(&entry?)?;
        }
        // A process that is still dying may have added something meanwhile.
        Ok(fs::read_dir(&root)?.next().is_none())
    };
    check().unwrap_or(false)
}

/// Whether a directory can be used as a new one but for what is in its root.
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
    if entry.file_type()?.is_dir() { remove::remove(&entry.path()) } else { fs::remove_file(entry.path()) }
}
