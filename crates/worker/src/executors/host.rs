//! The host executor: runs commands as plain processes, with the permissions of the worker or of a user.
//!
//! It enforces environment, timeout, output and limits, and leaves no processes behind. It is not a security boundary: a
//! command sees the machine as its user does.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;

use super::confine::{Confine, Confined};
use super::local::{self, Begin};
use super::lookup::{self, NotRunnable};
use super::process_group::{Containment, Started};
use super::{Executor, ExecutorOptions, Ran, Run, scratch};
use crate::{Error, Failure};

/// Tries to start a program that a process has open for writing, with a pause after each.
const MAX_BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(5);

pub struct Host {
    /// The allowed variables of the worker's environment.
    environment: BTreeMap<OsString, OsString>,
    pub(super) confine: Confine,
}

impl Host {
    pub fn open(options: &ExecutorOptions) -> Result<Host, Error> {
        Ok(Host { environment: allowed_environment(options), confine: Confine::open(options)? })
    }
}

pub(super) fn allowed_environment(options: &ExecutorOptions) -> BTreeMap<OsString, OsString> {
    let value = |name: &String| Some((name.into(), std::env::var_os(name)?));
    options.env_allow.iter().filter_map(value).collect()
}

/// The environment of a command: its own variables override the allowed ones.
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

/// Starts the command, or says why it cannot be run, as a shell does.
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
        // The program is an absolute path and nothing happens in the new process before it runs, so that the standard
        // library starts it without a copy of the memory map.
        None => {
            let mut command = Command::new(program);
            command.arg0(name).env_clear().envs(environment);
            command
        }
        Some((first, rest)) => {
            // `env` cannot run such a path.
            if program.as_os_str().as_encoded_bytes().contains(&b'=') {
                let why = format!("{name}: the path of a program must not contain '=' here");
                return Ok(Err(NotRunnable { exit_code: 126, why }));
            }
            let mut command = Command::new(first);
            // The command's environment is set last, without the worker's permissions.
            command.args(rest).env_clear().args(["/usr/bin/env", "-i"]);
            command.args(
                environment.iter().map(|(name, value)| [name.as_os_str(), value].join(OsStr::new("="))),
            );
            command.arg(program);
            command
        }
    };
    command.args(&run.arguments[1..]).current_dir(&run.working_directory);
    local::connect(&mut command, run)?;
    let mut tries = 0;
    loop {
        let error = match Started::new(&mut command, &run.input_root, Containment::None) {
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
