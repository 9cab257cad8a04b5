//! Files that take a command's output. They have no names, so that no command can swap them.
//!
//! They are in memory where the system allows that: to make and remove two files on disk for each command costs more
//! than most commands themselves, because a file system searches for inodes that were not used a moment ago. How much
//! a command may write is limited, and it is charged to whoever writes it.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};

/// A file in memory, or else in this directory.
pub(crate) fn file(directory: &Path) -> io::Result<File> {
    match memfd_create("output", MemfdFlags::CLOEXEC) {
        Ok(file) => Ok(File::from(file)),
        Err(_) => tempfile::tempfile_in(directory),
    }
}
