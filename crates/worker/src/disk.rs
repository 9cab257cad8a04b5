//! The disk space of work directories.
//!
//! A full disk makes commands fail for no reason of their own. So a part of it is reserved: while no more than that is
//! free, no command starts, and failures do not count against the command.

use std::path::PathBuf;

use wire::grpc::ErrorCategory;

use crate::Failure;

#[derive(Clone, Debug)]
pub struct Disk {
    directory: PathBuf,
    reserve_bytes: u64,
}

impl Disk {
    pub fn new(directory: impl Into<PathBuf>, reserve_bytes: u64) -> Disk {
        Disk { directory: directory.into(), reserve_bytes }
    }

    /// The bytes that must be freed before a command can start. Blocking.
    pub fn lacking_bytes(&self) -> u64 {
        let free = rustix::fs::statvfs(&self.directory).map_or(u64::MAX, |about| free_bytes(&about));
        self.reserve_bytes.saturating_add(1).saturating_sub(free)
    }

    /// The free bytes beyond the reserve, or why there are none. Blocking.
    pub fn usable_bytes(&self) -> Result<u64, String> {
        let directory = self.directory.display();
        let about = rustix::fs::statvfs(&self.directory)
            .map_err(|error| format!("the disk of {directory} cannot be looked at: {error}"))?;
        let free = free_bytes(&about);
        // Some file systems do not count files.
        if about.f_files > 0 && about.f_favail == 0 {
            return Err(format!("the disk of {directory} has no room for another file"));
        }
        match free.checked_sub(self.reserve_bytes) {
            Some(usable) if usable > 0 => Ok(usable),
            _ => Err(format!(
                "the disk of {directory} has {free} bytes left, and {} are kept free",
                self.reserve_bytes
            )),
        }
    }

    /// Fails while the disk is full. Blocking.
    pub fn check(&self) -> Result<(), Failure> {
        self.usable_bytes()
            .map(|_| ())
            .map_err(|why| Failure::new(Failure::DISK_FULL, ErrorCategory::Infrastructure, why).retryable())
    }
}

fn free_bytes(about: &rustix::fs::StatVfs) -> u64 {
    about.f_bavail.saturating_mul(about.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w16_a_disk_with_less_than_the_reserve_is_full() {
        let directory = tempfile::tempdir().unwrap();
        let free = Disk::new(directory.path(), 0).usable_bytes().unwrap();
        assert!(free > 0);
        assert_eq!(Disk::new(directory.path(), 0).lacking_bytes(), 0);
        assert!(Disk::new(directory.path(), free * 2).lacking_bytes() > 0);
        let failure = Disk::new(directory.path(), u64::MAX).check().unwrap_err();
        assert_eq!((failure.code, failure.category), (Failure::DISK_FULL, ErrorCategory::Infrastructure));
        assert!(failure.retryable && failure.message.contains("bytes left"), "{failure}");
        assert!(Disk::new(directory.path().join("gone"), 0).check().is_err());
    }
}
