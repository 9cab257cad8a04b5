//! A worker as a process: started again and again on the same directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::engine::{Engine, IMAGE};
use crate::process::Process;

/// With a limit, so that its commands are in control groups where there are any.
const MEMORY_BYTES: u64 = 512 << 20;

pub(super) struct Daemon {
    binary: PathBuf,
    url: String,
    pub id: String,
    /// All that it may touch.
    pub directory: PathBuf,
    config: PathBuf,
    log: PathBuf,
    pub process: Process,
}

impl Daemon {
    pub(super) fn new(
        binary: &Path,
        address: &str,
        backend: &str,
        engine: &Engine,
        root: &Path,
    ) -> Result<Daemon> {
        let id = format!("worker-{backend}");
        let config = root.join(format!("{id}.toml"));
        let (socket, image) = (engine.socket.display(), IMAGE);
        let limits = format!("[worker.limits]\nmemory_bytes = {MEMORY_BYTES}\n");
        let docker = format!("[worker.docker]\nhost = \"unix://{socket}\"\nimage = \"{image}\"\n");
        fs::write(&config, format!("[worker]\nbackend = \"{backend}\"\n{limits}{docker}"))?;
        Ok(Daemon {
            binary: binary.into(),
            url: format!("http://{address}"),
            directory: root.join(&id),
            log: root.join(format!("{id}.log")),
            process: Process::new(&id),
            config,
            id,
        })
    }

    pub(super) fn start(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.binary);
        command
            .args(["worker", "daemon", "--slots", "4", "--server-url", &self.url, "--id", &self.id])
            .arg("--config")
            .arg(&self.config)
            .arg("--work-dir")
            .arg(&self.directory)
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.process.start(&mut command)
    }
}
