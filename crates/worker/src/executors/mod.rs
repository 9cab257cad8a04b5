//! Ways to run a command, one file each.

mod cgroups;
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
mod usage;
mod users;

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;

use crate::Failure;

pub use docker::{Docker, IMAGE_PROPERTY};
pub use host::Host;
pub use open::{Check, check, open};
pub use options::{Backend, DockerOptions, ExecutorOptions, Limits, UnknownBackend};
pub(crate) use process_group::let_starts_pass;
pub use sandbox::{INPUT_ROOT, NETWORK_PROPERTY, Sandbox};
pub use usage::Usage;

/// A command, ready to run: its inputs are laid out and the parents of its outputs exist.
#[derive(Debug)]
pub struct Run {
    /// Not empty.
    pub arguments: Vec<String>,
    /// The command's own; they win over what the executor gives.
    pub environment: Vec<(String, String)>,
    /// Absolute.
    pub input_root: PathBuf,
    /// Absolute, at or below the input root, and there.
    pub working_directory: PathBuf,
    /// How long the command may run (R36).
    pub timeout: Option<Duration>,
    /// Empty, and to be written to.
    pub stdout: File,
    pub stderr: File,
    pub max_output_bytes: u64,
    /// The action's platform properties, or the command's where it has none.
    pub platform: Vec<(String, String)>,
    pub cancel: CancellationToken,
}

/// What became of a command. Nothing of it runs any more.
#[derive(Clone, Debug)]
pub struct Ran {
    pub end: End,
    pub started_at: SystemTime,
    pub ended_at: SystemTime,
    /// By the clock that the timeout is measured with.
    pub run_time: Duration,
    /// Where the executor can tell.
    pub usage: Option<Usage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code; 128 and the signal's number when a signal ended it (R53).
    Exited(i32),
    TimedOut,
    Cancelled,
    /// One of its outputs became larger than is kept.
    TooMuchOutput,
    /// It, or a process that it could not do without, was killed because it needed more memory than it may have.
    OutOfMemory,
}

#[tonic::async_trait]
pub trait Executor: Send + Sync + 'static {
    /// Runs a command to its end. A command that cannot be started is one that ended as a shell would say it (126 or
    /// 127, and why on standard error); a failure means that the executor itself is broken. When this is dropped,
    /// the command is killed.
    async fn execute(&self, run: Run) -> Result<Ran, Failure>;

    /// Ends and removes what a dead worker with the same id left running. To be called by who holds that worker's lock,
    /// before anything is run.
    async fn clear(&self) -> Result<(), Failure> {
        Ok(())
    }
}
