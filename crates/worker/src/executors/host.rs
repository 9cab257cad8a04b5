//! Runs commands as plain processes of this machine, with the worker's own rights or those of a user.
//!
//! It keeps to the command's environment, its time, its output and its limits, and leaves none of its processes
//! behind. It is no boundary: a command sees the machine as its user does.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;

use super::confine::{Confine, Confined};
use super::local::{self, Begin};
use super::lookup::{self, NotRunnable};
use super::process_group::{Bond, Started};
use super::{Executor, ExecutorOptions, Ran, Run, scratch};
use crate::{Error, Failure};

/// Tries to start a program that somebody has open for writing, with a pause after each.
const MAX_BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(5);

pub struct Host {
    /// What commands get of the worker's own environment, unless they say otherwise.
    environment: BTreeMap<OsString, OsString>,
    confine: Confine,
}

impl Host {
    /// What the configuration file allows by default (S3-69).
    pub const DEFAULT_ENV_ALLOW: [&str; 2] = ExecutorOptions::ENV_ALLOW;

    /// Commands see these variables of the worker's environment, and no others. They run as the worker's own user and
    /// without limits.
    pub fn new<'a>(allowed: impl IntoIterator<Item = &'a str>) -> Host {
        Host { environment: allowed_environment(allowed), confine: Confine::none() }
    }

    pub(super) fn open(options: &ExecutorOptions) -> Result<Host, Error> {
        let allowed = options.env_allow.iter().map(String::as_str);
        Ok(Host { environment: allowed_environment(allowed), confine: Confine::open(options)? })
    }

    pub(super) fn confine(&self) -> &Confine {
        &self.confine
    }
}

pub(super) fn allowed_environment<'a>(
    allowed: impl IntoIterator<Item = &'a str>,
) -> BTreeMap<OsString, OsString> {
    let value = |name: &str| Some((name.into(), std::env::var_os(name)?));
    allowed.into_iter().filter_map(value).collect()
}

/// What a command sees: its own variables win over those that it is allowed.
pub(super) fn environment_of(
    allowed: &BTreeMap<OsString, OsString>,
    run: &Run,
) -> BTreeMap<OsString, OsString> {
    let own = run.environment.iter().map(|(name, value)| (name.into(), value.into()));
    allowed.clone().into_iter().chain(own).collect()
}

#[tonic::async_trait]
impl Executor for Host {
    async fn execute(&self, run: Run) -> Result<Ran, Failure> {
        let environment = environment_of(&self.environment, &run);
        let begin = Begin::now();
        let confined = self.confine.prepare(&run).await?;
        let started = match start(&run, &environment, &confined).await? {
            Ok(started) => started,
            Err(why) => return local::not_runnable(&run, begin, &why),
        };
        let (end, usage) = local::until_over(started, &run, begin).await?;
        Ok(begin.ran(confined.end(end, &run)?, usage))
    }

    async fn clear(&self) -> Result<(), Failure> {
        self.confine.clear();
        scratch::clear(&self.confine.work_dir, &self.confine.key, None);
        Ok(())
    }
}

/// Starts the command. That it cannot be run is told as a shell tells it.
async fn start(
    run: &Run,
    environment: &BTreeMap<OsString, OsString>,
    confined: &Confined,
) -> Result<Result<Started, NotRunnable>, Failure> {
    let name = &run.arguments[0];
    let search_path = environment.get(&OsString::from("PATH")).map(|path| path.to_string_lossy());
    let program = match lookup::program(name, &run.working_directory, search_path.as_deref()) {
        Ok(program) => program,
        Err(not_runnable) => return Ok(Err(not_runnable)),
    };
    let mut command = match confined.chain.split_first() {
        None => direct(&program, name, environment),
        Some((first, rest)) => {
            // The one thing that `env` cannot run.
            if program.as_os_str().as_encoded_bytes().contains(&b'=') {
                let why = format!("{name}: the path of a program must not contain '=' here");
                return Ok(Err(NotRunnable { exit_code: 126, why }));
            }
            through(first, rest, &program, environment)
        }
    };
    command.args(&run.arguments[1..]).current_dir(&run.working_directory);
    local::connect(&mut command, run)?;
    let mut tries = 0;
    loop {
        let error = match Started::new(&mut command, &run.input_root, Bond::None) {
            Ok(started) => return Ok(Ok(started)),
            Err(error) => error,
        };
        tries += 1;
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::TXTBSY) if tries < MAX_BUSY_TRIES => tokio::time::sleep(BUSY_PAUSE).await,
            _ if local::is_exhausted(&error) => {
                return Err(Failure::io("a process could not be started", error));
            }
            _ => return Ok(Err(NotRunnable::refused(name, &error))),
        }
    }
}

/// The program is an absolute path and nothing has to happen in the new process, so that the standard library starts it
/// without copying this one's memory map.
fn direct(program: &Path, name: &str, environment: &BTreeMap<OsString, OsString>) -> Command {
    let mut command = Command::new(program);
    command.arg0(name).env_clear().envs(environment);
    command
}

/// The command's environment comes last, when nothing of the worker's rights is left.
fn through(
    first: &OsString,
    rest: &[OsString],
    program: &PathBuf,
    environment: &BTreeMap<OsString, OsString>,
) -> Command {
    let mut command = Command::new(first);
    command.args(rest).env_clear().args(["/usr/bin/env", "-i"]);
    for (name, value) in environment {
        let mut variable = name.clone();
        variable.push("=");
        variable.push(value);
        command.arg(variable);
    }
    command.arg(program);
    command
}
