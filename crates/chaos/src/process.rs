//! A process of the run: started, signalled, asked to end or killed, and killed when it is dropped.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

const STOP_DEADLINE: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) struct Process {
    /// What it is called in errors.
    name: String,
    child: Option<Child>,
}

impl Process {
    /// One that does not run yet.
    pub(crate) fn new(name: impl Into<String>) -> Process {
        Process { name: name.into(), child: None }
    }

    pub(crate) fn start(&mut self, command: &mut Command) -> Result<()> {
        self.child = Some(command.spawn().with_context(|| format!("cannot start {}", self.name))?);
        Ok(())
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().with_context(|| format!("cannot kill {}", self.name))?;
            child.wait().with_context(|| format!("cannot wait for {}, which was killed", self.name))?;
        }
        Ok(())
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + STOP_DEADLINE;
        while self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            if Instant::now() > deadline {
                bail!("{} did not end within {STOP_DEADLINE:?} when asked to", self.name);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let status = self.running()?.wait()?;
        self.child = None;
        ensure!(status.success(), "{} was asked to end and did so with {status}", self.name);
        Ok(())
    }

    pub(crate) fn signal(&mut self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(self.running()?);
        kill_process(pid, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// The status with which it ended on its own, if it did.
    pub(crate) fn exited(&mut self) -> Option<String> {
        self.child.as_mut()?.try_wait().ok().flatten().map(|status| status.to_string())
    }

    fn running(&mut self) -> Result<&mut Child> {
        self.child.as_mut().with_context(|| format!("{} is not running", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A failure here leaves nothing to do: the test has its result already.
        let _ = self.kill();
    }
}
