//! Copies the output of a container from the engine to the run's two files, up to their limit.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use bollard::container::LogOutput;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;

use super::container::Attached;
use crate::Failure;
use crate::executors::Run;

/// How long the last output of a container that has ended may take to arrive.
const MAX_LAST_OUTPUT: Duration = Duration::from_secs(10);

/// Copying ends with the container's output, at the limit, or when this is dropped.
pub(super) struct Output {
    taking: JoinHandle<()>,
    state: watch::Receiver<State>,
}

#[derive(Clone, Debug, Default)]
struct State {
    is_too_much: bool,
    failed: Option<String>,
}

impl Output {
    pub(super) fn new(mut attached: Attached, run: &Run) -> Output {
        let (sender, state) = watch::channel(State::default());
        let files = run.stdout.try_clone().and_then(|stdout| Ok((stdout, run.stderr.try_clone()?)));
        let max_bytes = run.max_output_bytes;
        let taking = tokio::spawn(async move {
            let (stdout, stderr) = match files {
                Ok(files) => files,
                Err(error) => return sender.send_modify(|state| state.failed = Some(error.to_string())),
            };
            let bounded = |file| Bounded { file, left_bytes: max_bytes };
            let (mut out, mut err) = (bounded(stdout), bounded(stderr));
            while let Some(part) = attached.next().await {
                let taken = match part {
                    Ok(LogOutput::StdErr { message }) => err.take(&message),
                    Ok(LogOutput::StdOut { message } | LogOutput::Console { message }) => out.take(&message),
                    Ok(LogOutput::StdIn { .. }) => Ok(true),
                    // The connection ends with the container, in whatever way.
                    Err(_) => break,
                };
                match taken {
                    Ok(true) => {}
                    Ok(false) => return sender.send_modify(|state| state.is_too_much = true),
                    Err(error) => return sender.send_modify(|state| state.failed = Some(error.to_string())),
                }
            }
        });
        Output { taking, state }
    }

    /// Resolves when the output exceeds the limit.
    pub(super) async fn is_too_much(&mut self) {
        if self.state.wait_for(|state| state.is_too_much).await.is_err() {
            std::future::pending().await
        }
    }

    pub(super) fn exceeds(&self) -> bool {
        self.state.borrow().is_too_much
    }

    /// Waits for the rest, once the container has ended. May be called again.
    pub(super) async fn finish(&mut self) {
        if self.taking.is_finished() {
            return;
        }
        let _ = tokio::time::timeout(MAX_LAST_OUTPUT, &mut self.taking).await;
    }

    pub(super) fn check(&self) -> Result<(), Failure> {
        match &self.state.borrow().failed {
            None => Ok(()),
            Some(why) => Err(Failure::broken(format!("the command's output could not be kept: {why}"))),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.taking.abort();
    }
}

struct Bounded {
    file: File,
    left_bytes: u64,
}

impl Bounded {
    /// Keeps what is within the limit, and returns whether that is all.
    fn take(&mut self, part: &[u8]) -> std::io::Result<bool> {
        let left = usize::try_from(self.left_bytes).unwrap_or(usize::MAX);
        let kept = &part[..part.len().min(left)];
        self.left_bytes -= kept.len() as u64;
        self.file.write_all(kept).map(|()| kept.len() == part.len())
    }
}
