//! The executors of commands, one file each.

pub(crate) mod cgroups;
mod confine;
mod docker;
mod host;
mod local;
mod lookup;
mod open;
mod options;
mod orphan_reaper;
mod probe;
mod process_group;
mod sandbox;
mod scratch;
mod starter;
pub(crate) mod users;

use std::fs::File;
use std::ops::AddAssign;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::process::Signal;
use tokio_util::sync::CancellationToken;

use crate::Failure;

pub use docker::{Docker, IMAGE_PROPERTY};
pub use host::Host;
pub use open::{Check, Selected, check, open, select};
pub use options::{Backend, DockerOptions, ExecutorOptions, Limits};
pub(crate) use process_group::let_starts_pass;
pub use sandbox::{INPUT_ROOT, NETWORK_HOST, NETWORK_PROPERTY, Sandbox};

/// A command, ready to run: its inputs are laid out and the parents of its outputs exist.
#[derive(Debug)]
pub struct Run {
    /// Not empty.
    pub arguments: Vec<String>,
    /// The command's own variables, which override those of the executor.
    pub environment: Vec<(String, String)>,
    /// Absolute.
    pub input_root: PathBuf,
    /// Absolute, at or below the input root; it exists.
    pub working_directory: PathBuf,
    /// How long the command may run (R36).
    pub timeout: Option<Duration>,
    /// Empty and writable.
    pub stdout: File,
    pub stderr: File,
    pub max_output_bytes: u64,
    /// The action's platform properties, or the command's where it has none.
    pub platform: Vec<(String, String)>,
    pub cancel: CancellationToken,
}

/// A command that has ended, with all of its processes.
#[derive(Clone, Debug)]
pub struct Ran {
    pub end: End,
    pub started_at: SystemTime,
    pub ended_at: SystemTime,
    /// By the clock that the timeout is measured with.
    pub run_time: Duration,
    /// `None` if the executor does not know it.
    pub usage: Option<Usage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this code; 128 and the signal's number if a signal ended it (R53).
    Exited(i32),
    TimedOut,
    Cancelled,
    /// Standard output or standard error exceeded the limit.
    TooMuchOutput,
    /// A process was killed because the command exceeded its memory limit.
    OutOfMemory,
}

impl End {
    /// The exit code of the result, as if a signal had ended the command (R53); `None` if there is no result.
    pub(crate) fn exit_code(self) -> Option<i32> {
        match self {
            End::Exited(code) => Some(code),
            End::TooMuchOutput => Some(128 + Signal::XFSZ.as_raw()),
            End::OutOfMemory => Some(KILLED),
            End::TimedOut | End::Cancelled => None,
        }
    }
}

/// The exit code of a command that was stopped.
pub(crate) const KILLED: i32 = 128 + Signal::KILL.as_raw();

/// The resources that a command used: its own, those of processes that it waited for, and those of killed leftovers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub user_time: Duration,
    pub system_time: Duration,
    /// The peak memory of its largest process; 0 if it is not known.
    pub max_rss_bytes: u64,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.user_time += other.user_time;
        self.system_time += other.system_time;
        self.max_rss_bytes = self.max_rss_bytes.max(other.max_rss_bytes);
    }
}

#[tonic::async_trait]
pub trait Executor: Send + Sync + 'static {
    /// Runs a command to its end. A command that cannot be started ends as in a shell: exit code 126 or 127, and the
    /// reason on standard error. A failure means that the executor itself is broken. Dropping the future kills the command.
    async fn execute(&self, run: Run) -> Result<Ran, Failure>;

    /// Kills and removes the leftovers of a dead worker with the same id. The caller holds the worker's lock, and nothing
    /// runs yet.
    async fn clear(&self) -> Result<(), Failure> {
        Ok(())
    }
}
