//! Runs commands as plain processes of this machine, with the worker's own rights.
//!
//! It keeps to the command's environment, its time and its output, and leaves no process of its group behind. It is
//! no boundary: a command sees the machine as the worker does.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use tokio::process::Command;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use super::lookup::{self, NotRunnable};
use super::process_group::{ProcessGroup, exit_code};
use super::{End, Executor, Ran, Run};
use crate::Failure;

/// How often the size of a running command's output is looked at.
const OUTPUT_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Tries to start a program that somebody has open for writing, with a pause after each.
const MAX_BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(5);

pub struct Host {
    /// What commands get of the worker's own environment, unless they say otherwise.
    environment: BTreeMap<OsString, OsString>,
}

impl Host {
    /// What the configuration file allows by default (S3-69).
    pub const DEFAULT_ENV_ALLOW: [&str; 2] = ["PATH", "HOME"];

    /// Commands see these variables of the worker's environment, and no others.
    pub fn new<'a>(allowed: impl IntoIterator<Item = &'a str>) -> Host {
        let value = |name: &str| Some((name.into(), std::env::var_os(name)?));
        Host { environment: allowed.into_iter().filter_map(value).collect() }
    }
}

#[tonic::async_trait]
impl Executor for Host {
    async fn execute(&self, run: Run) -> Result<Ran, Failure> {
        let environment = self.environment(&run);
        let started_at = SystemTime::now();
        let clock = Instant::now();
        let mut group = match start(&run, &environment).await? {
            Ok(group) => group,
            Err(not_runnable) => {
                writeln!(&run.stderr, "{}", not_runnable.why)
                    .map_err(|error| Failure::io("standard error", error))?;
                return Ok(ran(End::Exited(not_runnable.exit_code), started_at, clock));
            }
        };
        let broken = |error| Failure::io("a process could not be waited for", error);
        let (status, stopped) = until_over(&mut group, &run, clock).await.map_err(broken)?;
        let end = match stopped {
            Some(why) => why,
            None if exceeds(&run) => End::TooMuchOutput,
            None => End::Exited(exit_code(status)),
        };
        Ok(ran(end, started_at, clock))
    }
}

impl Host {
    fn environment(&self, run: &Run) -> BTreeMap<OsString, OsString> {
        let own = run.environment.iter().map(|(name, value)| (name.into(), value.into()));
        self.environment.clone().into_iter().chain(own).collect()
    }
}

fn ran(end: End, started_at: SystemTime, clock: Instant) -> Ran {
    Ran { end, started_at, ended_at: SystemTime::now(), run_time: clock.elapsed(), usage: None }
}

/// Starts the command. That it cannot be run is told as a shell tells it.
async fn start(
    run: &Run,
    environment: &BTreeMap<OsString, OsString>,
) -> Result<Result<ProcessGroup, NotRunnable>, Failure> {
    let name = &run.arguments[0];
    let search_path = environment.get(&OsString::from("PATH")).map(|path| path.to_string_lossy());
    let program = match lookup::program(name, &run.working_directory, search_path.as_deref()) {
        Ok(program) => program,
        Err(not_runnable) => return Ok(Err(not_runnable)),
    };
    let broken = |error| Failure::io("the command's output could not be captured", error);
    let mut command = Command::new(program);
    // The program is an absolute path and nothing has to happen in the new process, so that the standard library
    // starts it without copying this one's memory map.
    command
        .arg0(name)
        .args(&run.arguments[1..])
        .env_clear()
        .envs(environment)
        .current_dir(&run.working_directory)
        .stdin(Stdio::null())
        .stdout(run.stdout.try_clone().map_err(broken)?)
        .stderr(run.stderr.try_clone().map_err(broken)?);
    let mut tries = 0;
    loop {
        let error = match ProcessGroup::start(&mut command) {
            Ok(group) => return Ok(Ok(group)),
            Err(error) => error,
        };
        tries += 1;
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::TXTBSY) if tries < MAX_BUSY_TRIES => tokio::time::sleep(BUSY_PAUSE).await,
            // The machine has no room for a process: nothing is wrong with the command.
            Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => {
                return Err(Failure::io("a process could not be started", error));
            }
            _ => return Ok(Err(NotRunnable::refused(name, &error))),
        }
    }
}

/// Waits for the end of the command, or ends it. Says why if it was ended.
async fn until_over(
    group: &mut ProcessGroup,
    run: &Run,
    clock: Instant,
) -> std::io::Result<(ExitStatus, Option<End>)> {
    let times_out = async {
        match run.timeout.and_then(|timeout| clock.checked_add(timeout)) {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    let why = tokio::select! {
        biased;
        ended = group.ended() => return ended.map(|status| (status, None)),
        () = run.cancel.cancelled() => End::Cancelled,
        () = times_out => End::TimedOut,
        () = writes_too_much(run) => End::TooMuchOutput,
    };
    Ok((group.terminate().await?, Some(why)))
}

async fn writes_too_much(run: &Run) {
    let mut ticks: Interval = interval_at(Instant::now() + OUTPUT_CHECK_INTERVAL, OUTPUT_CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !exceeds(run) {
        ticks.tick().await;
    }
}

fn exceeds(run: &Run) -> bool {
    let bytes = |file: &File| file.metadata().map_or(0, |about| about.len());
    bytes(&run.stdout).max(bytes(&run.stderr)) > run.max_output_bytes
}
