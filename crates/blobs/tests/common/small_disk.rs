//! A disk that can really be full, for the tests of whoever keeps content on one.

use std::path::Path;
use std::process::Command;

/// A file system of a few megabytes, unmounted when it is dropped. Mounting takes root.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    pub(crate) fn mount(bytes: u64) -> SmallDisk {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory.path()).status();
        assert!(mount.unwrap().success(), "mounting a small file system takes root");
        SmallDisk(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}
