//! What has to leave a directory that is used again: moved out at once, and removed when somebody has the time.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::WorkDirs;
use crate::dirfd::Directory;

/// A heap that is made when something comes upon it, beside the attempts' directories, and removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Trash {
    dirs: Arc<WorkDirs>,
    heap: Option<(PathBuf, Directory)>,
    next: u64,
}

impl Trash {
    pub(crate) fn new(dirs: &Arc<WorkDirs>) -> Trash {
        Trash { dirs: dirs.clone(), heap: None, next: 0 }
    }

    /// Moves out what there is under a name, whatever it is. Blocking.
    pub(crate) fn take(&mut self, from: &Directory, name: &OsStr) -> io::Result<()> {
        let heap = match &mut self.heap {
            Some((_, heap)) => heap,
            none => {
                let path = self.dirs.new_path();
                DirBuilder::new().mode(0o700).create(&path)?;
                let heap = Directory::open(&path)?;
                &mut none.insert((path, heap)).1
            }
        };
        self.next += 1;
        Ok(from.move_to(name, heap, &self.next.to_string())?)
    }
}

impl Drop for Trash {
    fn drop(&mut self) {
        if let Some((path, _)) = self.heap.take() {
            self.dirs.later(move |_| super::remove_or_log(&path));
        }
    }
}
