//! A worker as a process: start it, stop it, kill it, start it again on the same directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

const STOP_DEADLINE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub struct Daemon {
    binary: PathBuf,
    url: String,
    pub id: String,
    /// All that it may touch.
    pub directory: PathBuf,
    log: PathBuf,
    child: Option<Child>,
}

impl Daemon {
    pub fn new(binary: &Path, address: &str, id: &str, root: &Path) -> Daemon {
        Daemon {
            binary: binary.into(),
            url: format!("http://{address}"),
            id: id.into(),
            directory: root.join(id),
            log: root.join(format!("{id}.log")),
            child: None,
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
        self.child =
            Some(command.spawn().with_context(|| format!("cannot start {}", self.binary.display()))?);
        Ok(())
    }

    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().context("cannot kill a worker")?;
            child.wait().context("cannot wait for a killed worker")?;
        }
        Ok(())
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("the worker is not running")?;
        let pid = Pid::from_raw(i32::try_from(child.id())?).context("the worker has no process id")?;
        kill_process(pid, signal).context("cannot signal a worker")
    }

    /// Asks it to end, and waits until it has.
    pub async fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + STOP_DEADLINE;
        while self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            if Instant::now() > deadline {
                bail!("worker {} did not end within {STOP_DEADLINE:?} when asked to", self.id);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let status = self.child.take().context("the worker is not running")?.wait()?;
        ensure!(status.success(), "worker {} was asked to end and did so with {status}", self.id);
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A failure here leaves nothing to do: the test has its result already.
        let _ = self.kill();
    }
}
