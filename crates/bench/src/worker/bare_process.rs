//! Runs the no-op program without a worker, as the baseline of a worker. In a sandbox the program has exactly the
//! worker's sandbox: the arguments are the worker's own.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, WaitOptions, waitpgid};
use worker::executors::{Backend, ExecutorOptions, Sandbox};

use super::{PROGRAM, WORKER_ID};

pub(crate) struct BareProcess {
    inside: PathBuf,
    sandbox: Option<Sandbox>,
    /// Of the processes that were started and may have left others, which fall to this process.
    groups: Mutex<Vec<Pid>>,
}

impl BareProcess {
    /// Containers have no such baseline; they are measured against a plain process.
    pub(crate) fn open(backend: Backend, dir: &Path) -> Result<BareProcess> {
        let dir = std::path::absolute(dir)?.join("bare");
        let inside = dir.join("inside");
        std::fs::create_dir_all(&inside)?;
        let options = ExecutorOptions::new(Backend::Sandbox, WORKER_ID, &dir);
        let is_sandbox = matches!(backend, Backend::Sandbox | Backend::Auto);
        let sandbox = is_sandbox.then(|| Sandbox::open(&options)).transpose()?;
        Ok(BareProcess { inside, sandbox, groups: Mutex::default() })
    }

    pub(super) fn run(&self) -> Result<Duration> {
        self.time(match &self.sandbox {
            Some(sandbox) => sandbox.bare(&self.inside, &[PROGRAM]),
            None => Command::new(PROGRAM),
        })
    }

    /// The times of runs one after the other.
    pub(crate) fn run_many(&self, count: usize) -> Result<Vec<Duration>> {
        let run = |_| {
            let time = self.run();
            self.reap();
            time
        };
        (0..count).map(run).collect()
    }

    /// Runs in a sandbox with all namespaces and the minimum that a command needs, which is less than a worker's sandbox.
    pub(super) fn run_in_minimal_sandbox(&self) -> Result<Option<Duration>> {
        if self.sandbox.is_none() {
            return Ok(None);
        }
        let mut command = Command::new("bwrap");
        command.args(["--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr"]);
        command.args(["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"]);
        command.args(["--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
        command.arg("--bind").arg(&self.inside).args(["/build", "--chdir", "/build", PROGRAM]);
        self.time(command).map(Some)
    }

    /// Waits for the orphans that the processes left. This is not part of their time: a user of a shell does not see it.
    pub(super) fn reap(&self) {
        for group in std::mem::take(&mut *self.groups.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
        {
            while waitpgid(group, WaitOptions::empty()).is_ok() {}
        }
    }

    fn time(&self, mut command: Command) -> Result<Duration> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let began = Instant::now();
        let (id, status) = tokio::task::block_in_place(|| {
            let mut child = command.spawn()?;
            child.wait().map(|status| (child.id(), status))
        })
        .context("cannot start a bare process")?;
        let time = began.elapsed();
        if !status.success() {
            bail!("a bare process ended with {status}");
        }
        let group = i32::try_from(id).ok().and_then(Pid::from_raw);
        self.groups.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(group);
        Ok(time)
    }
}
