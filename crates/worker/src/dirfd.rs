//! Directories by handle: whatever an action does to paths, no symbolic link is followed and no directory above is
//! reached.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags, flistxattr_query, mkdirat,
    openat, readlinkat, renameat, statat, statx,
};
use rustix::io::{Errno, Result};

use execution::RelativePath;

const OPEN_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);
const MODE_BITS: u32 = 0o7777;
const SPECIAL: StatxAttributes =
    StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND).union(StatxAttributes::MOUNT_ROOT);

#[derive(Debug)]
pub struct Directory(OwnedFd);

impl Directory {
    pub fn open(path: &Path) -> Result<Directory> {
        openat(CWD, path, OPEN_DIRECTORY, Mode::empty()).map(Directory)
    }

    /// Opens a directory in this one; not a symbolic link to a directory.
    pub fn directory(&self, name: &str) -> Result<Directory> {
        openat(&self.0, name, OPEN_DIRECTORY, Mode::empty()).map(Directory)
    }

    pub fn make(&self, name: &str) -> Result<Directory> {
        mkdirat(&self.0, name, DIRECTORY_MODE)?;
        self.directory(name)
    }

    pub fn descend(&self, path: &RelativePath) -> Result<Directory> {
        path.components().iter().try_fold(self.again()?, |directory, name| directory.directory(name))
    }

    /// As [`Directory::descend`], and creates missing directories.
    pub fn descend_or_make(&self, path: &RelativePath) -> Result<Directory> {
        path.components().iter().try_fold(self.again()?, |directory, name| match directory.directory(name) {
            Err(Errno::NOENT) => directory.make(name),
            found => found,
        })
    }

    /// Opens a regular file for reading. Never waits for the other end of a pipe.
    pub fn file(&self, name: &str) -> Result<(File, Stat)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = openat(&self.0, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        match kind(&stat) {
            FileType::RegularFile => Ok((File::from(file), stat)),
            _ => Err(Errno::INVAL),
        }
    }

    pub fn move_to(&self, name: &OsStr, to: &Directory, new_name: &str) -> Result<()> {
        renameat(&self.0, name, &to.0, new_name)
    }

    /// Whether the directory is like new, apart from its times and entries: the same owner, mode and attributes, and not a
    /// mount. With a stricter umask, no directory is.
    pub fn is_as_made(&self) -> Result<bool> {
        let wanted = StatxFlags::MODE | StatxFlags::UID | StatxFlags::GID;
        let about = statx(&self.0, "", AtFlags::EMPTY_PATH, wanted)?;
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let is_special = about.stx_attributes.intersects(SPECIAL);
        let has_attributes = !matches!(flistxattr_query(&self.0), Ok(0) | Err(Errno::OPNOTSUPP));
        Ok((about.stx_uid, about.stx_gid) == own
            && u32::from(about.stx_mode) & MODE_BITS == DIRECTORY_MODE.as_raw_mode()
            && !is_special
            && !has_attributes)
    }

    pub fn stat(&self, name: &str) -> Result<Stat> {
        statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    pub fn link_target(&self, name: &str) -> Result<OsString> {
        Ok(OsString::from_vec(readlinkat(&self.0, name, Vec::new())?.into_bytes()))
    }

    pub fn names(&self) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    fn again(&self) -> Result<Directory> {
        rustix::io::fcntl_dupfd_cloexec(&self.0, 0).map(Directory)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn path(text: &str) -> RelativePath {
        RelativePath::parse(text).unwrap()
    }

    #[test]
    fn x9_x10_no_link_is_followed_on_the_way_or_at_the_end() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        let dir = tempfile::tempdir().unwrap();
        symlink(outside.path(), dir.path().join("out")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join("file")).unwrap();
        let root = Directory::open(dir.path()).unwrap();
        assert!(root.directory("out").is_err());
        assert!(root.descend(&path("out")).is_err());
        assert!(root.descend_or_make(&path("out/deeper")).is_err());
        assert_eq!(root.file("file").unwrap_err(), Errno::LOOP);
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_pipe_is_no_file_and_nobody_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = Directory::open(dir.path()).unwrap();
        rustix::fs::mkfifoat(&root, "pipe", Mode::from_raw_mode(0o644)).unwrap();
        assert_eq!(root.file("pipe").unwrap_err(), Errno::INVAL);
    }

    #[test]
    fn missing_directories_are_made_on_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let root = Directory::open(dir.path()).unwrap();
        root.descend_or_make(&path("a/b")).unwrap();
        root.descend_or_make(&path("a/b/c")).unwrap();
        assert!(dir.path().join("a/b/c").is_dir());
        assert_eq!(root.descend(&path("a/x")).unwrap_err(), Errno::NOENT);
        assert_eq!(root.directory("a").unwrap().names().unwrap(), ["b"]);
    }
}
