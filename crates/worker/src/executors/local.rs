//! Runs a command as processes of this machine, for host and sandbox: enforces its timeout and its output limit.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use super::lookup::NotRunnable;
use super::process_group::{ProcessGroup, Started, exit_code};
use super::{End, Ran, Run, Usage};
use crate::Failure;

/// How often the size of a running command's output is checked.
const OUTPUT_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Enough for one line of an error.
const MAX_BEGINNING_BYTES: usize = 4096;

/// The start of a run, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    at: SystemTime,
    clock: Instant,
}

impl Begin {
    pub(super) fn now() -> Begin {
        Begin { at: SystemTime::now(), clock: Instant::now() }
    }

    pub(super) fn ran(&self, end: End, usage: Option<Usage>) -> Ran {
        Ran { end, started_at: self.at, ended_at: SystemTime::now(), run_time: self.clock.elapsed(), usage }
    }

    pub(super) async fn timed_out(&self, run: &Run) {
        match run.timeout.and_then(|timeout| self.clock.checked_add(timeout)) {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

/// No standard input, and both outputs into the run's files.
pub(super) fn connect(command: &mut Command, run: &Run) -> Result<(), Failure> {
    let broken = |error| Failure::io("the command's output could not be captured", error);
    command
        .stdin(Stdio::null())
        .stdout(run.stdout.try_clone().map_err(broken)?)
        .stderr(run.stderr.try_clone().map_err(broken)?);
    Ok(())
}

/// The end of a command that cannot be run, as in a shell.
pub(super) fn not_runnable(run: &Run, begin: Begin, why: &NotRunnable) -> Result<Ran, Failure> {
    writeln!(&run.stderr, "{}", why.why).map_err(|error| Failure::io("standard error", error))?;
    Ok(begin.ran(End::Exited(why.exit_code), None))
}

/// Whether the machine cannot start any process, so that the command is not the cause.
pub(super) fn is_exhausted(error: &std::io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE))
}

pub(super) async fn until_over(
    started: Started,
    run: &Run,
    begin: Begin,
) -> Result<(End, Option<Usage>), Failure> {
    let broken = |error| Failure::io("a process could not be waited for", error);
    let group = ProcessGroup::new(started).map_err(broken)?;
    let why = tokio::select! {
        biased;
        () = group.ends() => None,
        () = run.cancel.cancelled() => Some(End::Cancelled),
        () = begin.timed_out(run) => Some(End::TimedOut),
        () = writes_too_much(run) => Some(End::TooMuchOutput),
    };
    if why.is_some() {
        group.terminate().await;
    }
    let (status, usage) = group.reap().await.map_err(broken)?;
    let end = match why {
        Some(why) => why,
        None if exceeds(run) => End::TooMuchOutput,
        None => End::Exited(exit_code(status)),
    };
    Ok((end, usage))
}

/// The beginning of an output, to distinguish errors of the wrapper from those of the command.
pub(super) fn beginning(output: &File) -> String {
    let mut buffer = [0; MAX_BEGINNING_BYTES];
    let read = output.read_at(&mut buffer, 0).unwrap_or(0);
    String::from_utf8_lossy(&buffer[..read]).into_owned()
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
