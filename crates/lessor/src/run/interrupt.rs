//! Ctrl-C: cancels the operation on the server.

use std::pin::pin;
use std::process::ExitCode;

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::progress::Progress;
use super::remote::{Remote, cause};

/// Runs the work until a signal cancels it. A second signal ends the wait for the cancellation.
pub(super) async fn or_done(
    remote: &Remote,
    progress: &Progress,
    work: impl Future<Output = Result<ExitCode>>,
) -> Result<ExitCode> {
    let (mut signals, mut work) = (Signals::listen()?, pin!(work));
    let code = tokio::select! {
        done = work.as_mut() => return done,
        code = signals.next() => code,
    };
    progress.end();
    // The command may run already while the name of its operation is on its way.
    tokio::select! {
        done = work.as_mut() => return done,
        () = remote.operation_named() => {}
        _ = signals.next() => {}
    }
    let is_running = remote.operation().is_some();
    let message = tokio::select! {
        cancelled = remote.cancel() => match cancelled {
            Ok(()) if is_running => "interrupted; the command is cancelled".to_owned(),
            Ok(()) => "interrupted before the command began".to_owned(),
            Err(status) => format!("interrupted; the command may still run: {}", cause(&status)),
        },
        _ = signals.next() => "interrupted; the command may still run".to_owned(),
    };
    progress.warn(message);
    Ok(ExitCode::from(code))
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?,
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
        })
    }

    /// The exit code: 128 and the signal's number.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
        }
    }
}
