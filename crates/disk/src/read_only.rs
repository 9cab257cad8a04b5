//! A directory of the operating system that is only read: files are opened for reading, and every call that would change
//! something, the lock included, is refused.

use std::{
    fs,
    io::{self, ErrorKind},
    path::PathBuf,
    sync::Arc,
};

use super::{Disk, File, real::RealFile};

pub struct ReadOnlyDisk {
    path: PathBuf,
}

impl ReadOnlyDisk {
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        if !fs::metadata(&path)?.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok(Self { path })
    }
}

impl Disk for ReadOnlyDisk {
    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        Err(refused())
    }

    fn create(&self, _: &str) -> io::Result<Arc<dyn File>> {
        Err(refused())
    }

    /// Opens an existing file for reading.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile(fs::File::open(self.path.join(name))?)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        super::real::list(&self.path)
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(refused())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(refused())
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        fs::exists(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        Err(refused())
    }
}

fn refused() -> io::Error {
    io::Error::new(ErrorKind::ReadOnlyFilesystem, "the directory is open for reading only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_only_directory_does_not_change() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "x").unwrap();
        let disk = ReadOnlyDisk::open(dir.path()).unwrap();
        assert!(disk.lock().is_err() && disk.create("b").is_err() && disk.remove("a").is_err());
        assert!(disk.rename("a", "b").is_err() && disk.sync_dir().is_err());
        assert!(disk.open("a").unwrap().write_at(b"y", 0).is_err());
        assert_eq!(disk.list().unwrap(), ["a"]);
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"x");
    }
}
