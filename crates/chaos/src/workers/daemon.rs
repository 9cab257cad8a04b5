//! A worker as a process: started again and again on the same directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::process::Process;

pub struct Daemon {
    binary: PathBuf,
    url: String,
    pub id: String,
    /// All that it may touch.
    pub directory: PathBuf,
    log: PathBuf,
    pub process: Process,
}

impl Daemon {
    pub fn new(binary: &Path, address: &str, id: &str, root: &Path) -> Daemon {
        Daemon {
            binary: binary.into(),
            url: format!("http://{address}"),
            id: id.into(),
            directory: root.join(id),
            log: root.join(format!("{id}.log")),
            process: Process::new(id),
        }
    }

    pub fn start(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.binary);
        command
            .args(["worker", "daemon", "--slots", "4", "--server-url", &self.url, "--id", &self.id])
            .arg("--work-dir")
            .arg(&self.directory)
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.process.start(&mut command)
    }
}
