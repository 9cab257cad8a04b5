//! Writes outputs below one directory, by handle.
//!
//! Names are single components, no symbolic link on the way is followed, and a file appears under its name complete or
//! not at all. Unfinished files are removed.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use execution::RelativePath;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, symlinkat, unlinkat};
use rustix::io::{Errno, Result};
use worker::dirfd::Directory;

/// Tries for an unused temporary name.
const MAX_TRIES: usize = 16;

#[derive(Clone)]
pub(super) struct Destination(Arc<Directory>);

impl Destination {
    /// The directory is the user's choice, so links on its path are followed.
    pub(super) fn open(path: &Path) -> std::io::Result<Destination> {
        std::fs::create_dir_all(path)?;
        Ok(Destination(Arc::new(Directory::open(&path.canonicalize()?)?)))
    }

    /// Creates a directory and its parents.
    pub(super) fn make(&self, path: &RelativePath) -> Result<()> {
        self.0.descend_or_make(path).map(|_| ())
    }

    /// A new file that gets its name when it is finished.
    pub(super) fn begin(&self, path: &RelativePath, is_executable: bool) -> Result<(File, Unfinished)> {
        let mode = Mode::from_raw_mode(if is_executable { 0o777 } else { 0o666 });
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.unfinished(path, |directory, name| openat(directory, name, flags, mode).map(File::from))
    }

    /// Creates a symbolic link, which is never followed here.
    pub(super) fn link(&self, path: &RelativePath, target: &str) -> Result<()> {
        let ((), unfinished) = self.unfinished(path, |directory, name| symlinkat(target, directory, name))?;
        unfinished.finish()
    }

    fn unfinished<T>(
        &self,
        path: &RelativePath,
        create: impl Fn(&Directory, &str) -> Result<T>,
    ) -> Result<(T, Unfinished)> {
        let (parent, name) = path.split_last().ok_or(Errno::ISDIR)?;
        let directory = self.0.descend_or_make(&parent)?;
        for _ in 0..MAX_TRIES {
            let temporary = temporary_name();
            match create(&directory, &temporary) {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
                Ok(created) => {
                    let name = name.to_owned();
                    return Ok((created, Unfinished { directory, temporary: Some(temporary), name }));
                }
            }
        }
        Err(Errno::EXIST)
    }
}

/// An entry under a temporary name, removed unless it is finished.
pub(super) struct Unfinished {
    directory: Directory,
    temporary: Option<String>,
    name: String,
}

impl Unfinished {
    /// Gives the entry its name, and replaces any entry but a directory.
    pub(super) fn finish(mut self) -> Result<()> {
        if let Some(temporary) = &self.temporary {
            renameat(&self.directory, temporary, &self.directory, &self.name)?;
        }
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = unlinkat(&self.directory, temporary, AtFlags::empty());
        }
    }
}

fn temporary_name() -> String {
    let mut random = [0; 8];
    // Without randomness the names of two processes may collide, which is an error of one of them.
    let _ = getrandom::fill(&mut random);
    format!(".lessor-run-{:016x}", u64::from_le_bytes(random))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn path(text: &str) -> RelativePath {
        RelativePath::parse(text).unwrap()
    }

    fn write(to: &Destination, at: &str, content: &str) -> Result<()> {
        let (mut file, unfinished) = to.begin(&path(at), true)?;
        file.write_all(content.as_bytes()).unwrap();
        unfinished.finish()
    }

    #[test]
    fn a_file_appears_whole_and_what_is_not_finished_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let to = Destination::open(&dir.path().join("made")).unwrap();
        drop(to.begin(&path("a/b"), false).unwrap());
        let below = dir.path().join("made/a");
        assert_eq!(fs::read_dir(&below).unwrap().count(), 0);
        write(&to, "a/b", "one").unwrap();
        write(&to, "a/b", "two").unwrap();
        assert_eq!(fs::read_to_string(below.join("b")).unwrap(), "two");
        assert_ne!(fs::metadata(below.join("b")).unwrap().permissions().mode() & 0o100, 0);
        assert_eq!(fs::read_dir(&below).unwrap().count(), 1);
    }

    #[test]
    fn x9_nothing_is_written_through_a_link() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("mine"), "mine").unwrap();
        let dir = tempfile::tempdir().unwrap();
        symlink(outside.path(), dir.path().join("out")).unwrap();
        symlink(outside.path().join("mine"), dir.path().join("file")).unwrap();
        let to = Destination::open(dir.path()).unwrap();
        assert!(write(&to, "out/new", "x").is_err());
        assert!(to.make(&path("out/new")).is_err());
        write(&to, "file", "x").unwrap();
        assert_eq!(fs::read_to_string(outside.path().join("mine")).unwrap(), "mine");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
        to.link(&path("file"), "elsewhere").unwrap();
        assert_eq!(fs::read_link(dir.path().join("file")).unwrap(), Path::new("elsewhere"));
        fs::create_dir(dir.path().join("kept")).unwrap();
        assert!(write(&to, "kept", "x").is_err(), "a directory is not replaced by a file");
    }
}
