//! Entries that are removed from a directory before it is used again: moved out at once, and deleted in the background.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::WorkDirs;
use crate::dirfd::Directory;

/// A directory beside the attempts' directories, created on first use and removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Trash {
    dirs: Arc<WorkDirs>,
    directory: Option<(PathBuf, Directory)>,
    next: u64,
}

impl Trash {
    pub(crate) fn new(dirs: &Arc<WorkDirs>) -> Trash {
        Trash { dirs: dirs.clone(), directory: None, next: 0 }
    }

    /// Moves out the entry with this name, of any kind. Blocking.
    pub(crate) fn take(&mut self, from: &Directory, name: &OsStr) -> io::Result<()> {
        let directory = match &mut self.directory {
            Some((_, directory)) => directory,
            none => {
                let path = self.dirs.new_path();
                DirBuilder::new().mode(0o700).create(&path)?;
                let directory = Directory::open(&path)?;
                &mut none.insert((path, directory)).1
            }
        };
        self.next += 1;
        Ok(from.move_to(name, directory, &self.next.to_string())?)
    }
}

impl Drop for Trash {
    fn drop(&mut self) {
        if let Some((path, _)) = self.directory.take() {
            self.dirs.clear_later(move |_| super::remove_or_log(&path));
        }
    }
}
