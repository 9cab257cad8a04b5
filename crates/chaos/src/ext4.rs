//! A file system in a file, which can become read-only as after an error of its disk, and be mounted again. Needs root.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The file is sparse: only what is written takes space.
const IMAGE_BYTES: u64 = 512 << 20;

pub struct Ext4 {
    path: PathBuf,
    image: PathBuf,
}

impl Ext4 {
    /// Makes a file system in the file and mounts it over an empty directory.
    pub fn mount(path: &Path, image: &Path) -> Result<Self> {
        File::create(image)?.set_len(IMAGE_BYTES)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image))?;
        let mounted = Self { path: path.into(), image: image.into() };
        mounted.attach()?;
        Ok(mounted)
    }

    /// Aborts the journal: from now on every write fails, also to files that are open.
    pub fn make_read_only(&self) -> Result<()> {
        run(Command::new("mount").args(["-o", "remount,abort"]).arg(&self.path))
    }

    /// Mounts it again, as after a repair. Nobody may have a file of it open.
    pub fn repair(&self) -> Result<()> {
        run(Command::new("umount").arg(&self.path))?;
        self.attach()
    }

    fn attach(&self) -> Result<()> {
        run(Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.path))
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        // Lazily, so that a process that is just ending cannot keep it mounted.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        status.success(),
        "a file system in a file needs root and loop devices; {command:?} ended with {status}"
    );
    Ok(())
}
