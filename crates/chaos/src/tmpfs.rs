//! A small file system that can be filled to the last byte and freed again. Needs root.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

const CHUNK_BYTES: usize = 1 << 20;

pub struct Tmpfs {
    path: PathBuf,
}

impl Tmpfs {
    /// Mounts a file system of this size over an empty directory.
    pub fn mount(path: &Path, size_bytes: u64) -> Result<Self> {
        let size = format!("size={size_bytes}");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).status();
        match status.context("cannot run `mount`")? {
            status if status.success() => Ok(Self { path: path.into() }),
            status => bail!("mounting a small file system needs root; `mount` ended with {status}"),
        }
    }

    /// Writes until nothing fits any more.
    pub fn fill(&self) -> Result<()> {
        let mut ballast = File::create(self.ballast())?;
        let mut chunk = CHUNK_BYTES;
        while chunk > 0 {
            match ballast.write(&vec![0; chunk]) {
                Ok(0) => chunk /= 2,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => chunk /= 2,
                Err(error) => return Err(error).context("cannot write the ballast"),
            }
        }
        Ok(())
    }

    pub fn free(&self) -> Result<()> {
        std::fs::remove_file(self.ballast()).context("cannot remove the ballast")
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily, so that a process that is just ending cannot keep it mounted.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}
