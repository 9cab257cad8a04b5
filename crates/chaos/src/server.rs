//! The coordinator as a process: start it, kill it, stop it, start it again on the same data and port.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::api::Api;
use crate::process::Process;

const START_DEADLINE: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const LOG_TAIL_LINES: usize = 30;

pub(crate) struct Server {
    binary: PathBuf,
    data: PathBuf,
    log: PathBuf,
    /// Known after the first start; later starts ask for the same one.
    address: Option<String>,
    process: Process,
    /// Whether tasks are pushed to a target on this machine.
    pub pushes: bool,
    /// Whether it runs actions itself.
    pub has_worker: bool,
    /// How far the wall clock of the next start is off, in seconds.
    clock_offset_s: i64,
}

impl Server {
    pub(crate) fn new(binary: &Path, data: &Path, log: &Path) -> Self {
        Self {
            binary: binary.into(),
            data: data.into(),
            log: log.into(),
            address: None,
            process: Process::new("the server"),
            pushes: false,
            has_worker: true,
            clock_offset_s: 0,
        }
    }

    pub(crate) fn address(&self) -> Result<&str> {
        self.address.as_deref().context("the server was never started")
    }

    /// Takes effect with the next start.
    pub(crate) fn set_clock_offset_s(&mut self, offset_s: i64) {
        self.clock_offset_s = offset_s;
    }

    /// Starts the process and waits until it answers.
    pub(crate) async fn start(&mut self) -> Result<()> {
        self.spawn()?;
        let deadline = Instant::now() + START_DEADLINE;
        while self.address.is_none() {
            self.still_starting(deadline)?;
            let text = std::fs::read_to_string(self.data.join("listen")).unwrap_or_default();
            match text.strip_suffix('\n') {
                Some(address) => self.address = Some(address.to_string()),
                None => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
        let api = Api::probe(self.address()?)?;
        while api.get("/v1/queues").await.status() != Some(200) {
            self.still_starting(deadline)?;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Starts the process and does not wait for it.
    pub(crate) fn spawn(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.binary);
        command
            .arg("up")
            .arg("--data")
            .arg(&self.data)
            .args(["--listen", self.address.as_deref().unwrap_or("127.0.0.1:0")])
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        if self.has_worker {
            command.args(["--backend", "host", "--work-dir"]).arg(self.data.with_extension("work"));
        } else {
            command.arg("--no-worker");
        }
        if self.pushes {
            command.arg("--allow-private-push-targets");
        }
        if self.clock_offset_s != 0 {
            command
                .env("LD_PRELOAD", faketime_library()?)
                .env("FAKETIME", format!("{:+}s", self.clock_offset_s))
                // Durations are measured on other clocks, which no operator can set.
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        self.process.start(&mut command)
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Asks the process to end, and waits until it has.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        self.process.stop().await
    }

    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// The status with which the process ended on its own, if it did.
    pub(crate) fn exited(&mut self) -> Option<String> {
        self.process.exited()
    }

    pub(crate) fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    fn still_starting(&mut self, deadline: Instant) -> Result<()> {
        if let Some(status) = self.exited() {
            bail!("the server ended with {status} instead of starting; its log ends:\n{}", self.log_tail());
        }
        if Instant::now() > deadline {
            bail!("the server did not answer within {START_DEADLINE:?}; its log ends:\n{}", self.log_tail());
        }
        Ok(())
    }
}

/// The library that gives one process another wall clock. Debian puts it into a directory of the machine's architecture.
pub fn faketime_library() -> Result<PathBuf> {
    let roots = std::fs::read_dir("/usr/lib").context("cannot list the system's libraries")?;
    let candidates = roots.flatten().map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    candidates.into_iter().find(|path| path.exists()).context("the package `faketime` is not installed")
}
