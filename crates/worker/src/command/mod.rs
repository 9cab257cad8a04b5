//! Tasks that are a command: run as actions are, but without inputs, and with standard output and error as their only
//! outputs.
//!
//! The exit code 0 is a result. Any other exit code is a failed attempt, unlike an action's, because only the queue's
//! policy decides whether the command is tried again.

mod output;
pub(crate) mod payload;

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};
use wire::grpc::{ErrorCategory, LeasedTask};

use crate::action::{Workspace, unless};
use crate::executors::Run;
use crate::outputs::Destination;
use crate::worker_context::WorkerContext;
use crate::{Failure, Permit};
use payload::Payload;

pub use output::MAX_INLINE_BYTES;

pub(crate) struct Commands {
    pub context: Arc<WorkerContext>,
    /// The instance of the content store that large outputs go to.
    pub instance: String,
}

impl Commands {
    pub(crate) async fn run(&self, task: &LeasedTask, permit: &Permit) -> Result<Bytes, Failure> {
        let payload = Payload::decode(&task.payload)?;
        let context = self.context.clone();
        let make = move || context.check_disk().and_then(|()| Workspace::empty(&context.dirs));
        let workspace = self.context.dirs.work(make).await?;
        let timeout = payload.timeout();
        let ran = self
            .context
            .executor
            .execute(prepared(&self.context, payload, task, &workspace, permit)?)
            .await?;
        permit.free();
        let exit_code =
            self.context.exit_code(&ran, timeout).await.map_err(|failure| match failure.code {
                // Another machine may be fast enough, and no client decides about a retry.
                Failure::TIMEOUT => failure.retryable(),
                _ => failure,
            })?;
        unless(permit.cancelled(), async {
            match exit_code {
                0 => self.result(&workspace).await,
                code => Err(self.failure(code, &workspace).await?),
            }
        })
        .await
    }

    async fn result(&self, workspace: &Workspace) -> Result<Bytes, Failure> {
        let mut result = Map::from_iter([("exitCode".to_owned(), Value::from(0))]);
        let to = self.destination();
        output::add(&to, "stdout", &workspace.stdout, &mut result).await?;
        output::add(&to, "stderr", &workspace.stderr, &mut result).await?;
        Ok(Value::Object(result).to_string().into())
    }

    /// The failure of a command, with the end of its standard error; longer output is in the content store.
    async fn failure(&self, exit_code: i32, workspace: &Workspace) -> Result<Failure, Failure> {
        let mut message = format!("the command ended with exit code {exit_code}");
        let (tail, is_all) = output::tail(&workspace.stderr).await?;
        if !is_all {
            message += &self.stored("standard error", &workspace.stderr).await;
        }
        if workspace.stdout.metadata().is_ok_and(|about| about.len() > 0) {
            message += &self.stored("standard output", &workspace.stdout).await;
        }
        if !tail.is_empty() {
            message = format!("{message}; its standard error ends with:\n{tail}");
        }
        Ok(Failure::new(Failure::EXIT_CODE, ErrorCategory::UserCode, message).retryable())
    }

    /// The digest of a stored output. A failed upload must not hide the failure of the command.
    async fn stored(&self, what: &str, file: &File) -> String {
        let uploaded = match file.try_clone() {
            Ok(file) => output::upload(&self.destination(), file).await,
            Err(error) => Err(Failure::io("the command's output", error)),
        };
        match uploaded {
            Ok(digest) => format!(", {what} {digest}"),
            Err(failure) => format!(", {what} lost ({failure})"),
        }
    }

    fn destination(&self) -> Destination<'_> {
        Destination { cas: &*self.context.cas, instance: &self.instance }
    }
}

/// The environment names the attempt, so that systems that the command changes can distinguish an old attempt.
fn prepared(
    context: &WorkerContext,
    payload: Payload,
    task: &LeasedTask,
    workspace: &Workspace,
    permit: &Permit,
) -> Result<Run, Failure> {
    let (stdout, stderr) = workspace.captures()?;
    let own = [
        ("LESSOR_TASK_ID", task.task_id.clone()),
        ("LESSOR_ATTEMPT", task.attempt.to_string()),
        ("LESSOR_FENCING_TOKEN", task.fencing_token.to_string()),
    ];
    let timeout = payload.timeout();
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
    Ok(Run {
        arguments: payload.command,
        environment: payload.env.into_iter().chain(own).collect(),
        input_root: workspace.root.clone(),
        working_directory: workspace.root.clone(),
        timeout,
        stdout,
        stderr,
        max_output_bytes: context.max_output_bytes,
        platform: payload.platform.into_iter().collect(),
        cancel: permit.cancelled().clone(),
    })
}
