//! The sandbox executor: runs commands in their own Linux namespaces, created by bubblewrap.
//!
//! A command sees the system's programs and libraries, read-only, a small private /tmp, and its input root at /build.
//! It sees no other process, nothing of the worker or of other actions, and no network unless its platform asks for
//! it. It has no capability and can gain none. When it ends, the kernel ends everything that it started.

mod system;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::confine::Confine;
use super::host::{allowed_environment, environment_of};
use super::local::{self, Begin};
use super::{End, Executor, ExecutorOptions, Ran, Run, scratch, starter};
use crate::{Error, Failure, proc};
use system::System;

/// Where a command finds its input root.
pub const INPUT_ROOT: &str = "/build";
/// The platform property that asks for the network, with [`NETWORK_HOST`] or [`NETWORK_NONE`].
pub const NETWORK_PROPERTY: &str = "network";
pub const NETWORK_HOST: &str = "host";
pub(super) const NETWORK_NONE: &str = "none";
/// The size of a command's /tmp, which is in memory.
const TMP_BYTES: u64 = 1 << 30;

pub struct Sandbox {
    program: PathBuf,
    environment: BTreeMap<OsString, OsString>,
    pub(super) confine: Confine,
    system: System,
    /// The arguments of bubblewrap for every command.
    arguments: Vec<OsString>,
}

impl Sandbox {
    /// Does not run a command yet.
    pub fn open(options: &ExecutorOptions) -> Result<Sandbox, Error> {
        let program = find().ok_or_else(|| {
            Error::Setup(
                "bwrap is not installed: install the package bubblewrap, or use the host backend".to_owned(),
            )
        })?;
        let tmp_bytes = options.limits.memory_bytes.map_or(TMP_BYTES, |memory| memory.min(TMP_BYTES));
        let confine = Confine::open(options)?;
        let system = System::new(&confine.work_dir, &confine.key);
        let system = system.map_err(|error| Error::io("what a sandbox shows of the system", error))?;
        Ok(Sandbox {
            program,
            environment: allowed_environment(options),
            arguments: arguments(tmp_bytes, &system, &options.hidden),
            confine,
            system,
        })
    }

    /// The same sandbox without a worker, as a baseline of benchmarks.
    pub fn bare(&self, input_root: &Path, arguments: &[&str]) -> Command {
        let mut command = self.bubblewrap(&[]);
        set(&mut command, &self.environment);
        enter(&mut command, input_root, Path::new(INPUT_ROOT));
        command.args(arguments);
        command
    }

    fn command(&self, run: &Run, chain: &[OsString]) -> Result<Command, Failure> {
        let mut command = self.bubblewrap(chain);
        if wants_network(run)? {
            command.args(["--share-net", "--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf"]);
        }
        set(&mut command, &environment_of(&self.environment, run));
        enter(&mut command, &run.input_root, &inside(run));
        command.args(&run.arguments);
        local::connect(&mut command, run)?;
        Ok(command)
    }

    fn bubblewrap(&self, chain: &[OsString]) -> Command {
        let mut command = match chain.split_first() {
            None => Command::new(&self.program),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(&self.program);
                command
            }
        };
        // The command's environment could make bubblewrap load the command's code.
        command.env_clear().current_dir("/").args(&self.arguments);
        command
    }
}

#[tonic::async_trait]
impl Executor for Sandbox {
    async fn execute(&self, run: Run) -> Result<Ran, Failure> {
        let begin = Begin::now();
        if run.arguments[0].is_empty() {
            return local::not_runnable(&run, begin, &super::lookup::NotRunnable::not_found("''"));
        }
        let confined = self.confine.prepare(&run).await?;
        let command = self.command(&run, &confined.chain)?;
        let started = starter::start(command, run.input_root.clone()).await;
        let started = started.map_err(|error| Failure::io("the sandbox could not be started", error))?;
        let (end, usage) = local::until_over(started, &run, begin).await?;
        Ok(begin.ran(check_sandbox_end(confined.end(end, &run)?, &run)?, usage))
    }

    async fn clear(&self) -> Result<(), Failure> {
        self.confine.clear();
        scratch::clear(&self.confine.work_dir, &self.confine.key, Some(self.system.settings.path()));
        Ok(())
    }
}

/// Bubblewrap ends with 1 and one line of its own when it cannot run the command. If the command is the cause, the exit
/// code is that of a shell (126 or 127); anything else is a failure of the worker.
fn check_sandbox_end(end: End, run: &Run) -> Result<End, Failure> {
    if end != End::Exited(1) {
        return Ok(end);
    }
    let said = local::beginning(&run.stderr);
    let own_line = said.strip_prefix("bwrap: ").filter(|line| line.lines().count() == 1);
    match own_line {
        None => Ok(end),
        Some(line) if line.starts_with("execvp ") => {
            Ok(End::Exited(if line.trim_end().ends_with("No such file or directory") { 127 } else { 126 }))
        }
        Some(line) => Err(Failure::broken(format!("the sandbox could not be made: {}", line.trim_end()))),
    }
}

/// The working directory as the command sees it.
pub(super) fn inside(run: &Run) -> PathBuf {
    let below = run.working_directory.strip_prefix(&run.input_root).unwrap_or(Path::new(""));
    Path::new(INPUT_ROOT).components().chain(below.components()).collect()
}

fn set(command: &mut Command, environment: &BTreeMap<OsString, OsString>) {
    for (name, value) in environment {
        command.arg("--setenv").args([name, value]);
    }
}

/// The arguments before the command line.
fn enter(command: &mut Command, input_root: &Path, working_directory: &Path) {
    command.arg("--bind").arg(input_root).arg(INPUT_ROOT);
    command.args(["--remount-ro", "/", "--chdir"]).arg(working_directory).arg("--");
}

fn wants_network(run: &Run) -> Result<bool, Failure> {
    let asked = run.platform.iter().find(|(name, _)| name == NETWORK_PROPERTY);
    match asked.map(|(_, value)| value.as_str()) {
        None | Some(NETWORK_NONE) => Ok(false),
        Some(NETWORK_HOST) => Ok(true),
        Some(other) => Err(Failure::invalid_action(format!(
            "the platform property {NETWORK_PROPERTY} is {NETWORK_NONE} or {NETWORK_HOST}, and not {other:?}"
        ))),
    }
}

fn arguments(tmp_bytes: u64, system: &System, hidden: &[PathBuf]) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
    add(&["--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--clearenv"]);
    add(&["--hostname", "sandbox", "--proc", "/proc", "--dev", "/dev"]);
    add(&["--size", &tmp_bytes.to_string(), "--perms", "1777", "--tmpfs", "/tmp"]);
    // A command must not insert input into the worker's terminal. Its own session prevents that, and costs half as much as
    // the sandbox itself.
    if proc::own_stat().is_none_or(|stat| stat.tty_nr != 0) {
        add(&["--new-session"]);
    }
    arguments.extend(system.mount_arguments(hidden));
    arguments
}

fn find() -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    super::lookup::program("bwrap", Path::new("/"), Some(&path)).ok()
}
