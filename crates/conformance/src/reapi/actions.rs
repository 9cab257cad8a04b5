//! Actions that any worker on Linux can run, each unlike all others.

use bazel_remote_apis::build::bazel::remote::execution::v2::command::EnvironmentVariable;
use bazel_remote_apis::build::bazel::remote::execution::v2::platform::Property;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Action, ActionResult, Command, Digest, Directory, ExecuteRequest, ExecuteResponse, Platform,
    WaitExecutionRequest,
};
use bazel_remote_apis::google::protobuf::Duration as Span;
use prost::Message;
use tonic::Status;

use super::client::Remote;
use super::content::{digest, random};
use super::waiting::Waiting;
use crate::grpc::format_status;
use crate::{Finding, Subject};

/// Says something else each time that it is run.
pub(super) const TELLS_RUNS_APART: &str = "cat /proc/sys/kernel/random/uuid";

/// An action before it is uploaded.
#[derive(Clone)]
pub(super) struct Draft {
    pub action: Action,
    pub command: Command,
    pub root: Directory,
}

/// Begins an execution that only a worker with this property can run. The client waits until the result is dropped.
pub(crate) async fn begin_for(
    subject: &Subject,
    (name, value): (&str, &str),
    timeout_s: Option<i64>,
) -> Result<impl Sized, Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let mut draft = Draft::of("true")?;
    draft.action.timeout = timeout_s.map(|seconds| Span { seconds, nanos: 0 });
    let property = Property { name: name.to_owned(), value: value.to_owned() };
    draft.action.platform = Some(Platform { properties: vec![property] });
    let action = remote.prepare(&draft).await?;
    remote.begin(remote.ask(&action)).await
}

impl Draft {
    /// Of `/bin/sh -c script`, with nothing as its input.
    pub(super) fn of(script: &str) -> Result<Draft, Finding> {
        let arguments = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let path = EnvironmentVariable { name: "PATH".into(), value: "/bin:/usr/bin".into() };
        let command = Command { arguments, environment_variables: vec![path], ..Command::default() };
        let action = Action { salt: random(16)?, ..Action::default() };
        Ok(Draft { action, command, root: Directory::default() })
    }

    /// The messages to upload: command, root and action.
    pub(super) fn messages(&self) -> [Vec<u8>; 3] {
        let (command, root) = (self.command.encode_to_vec(), self.root.encode_to_vec());
        let action = Action {
            command_digest: Some(digest(&command)),
            input_root_digest: Some(digest(&root)),
            ..self.action.clone()
        };
        [command, root, action.encode_to_vec()]
    }
}

impl<'a> Remote<'a> {
    /// Skips what needs an execution where the server executes nothing.
    pub(super) async fn needs_execution(&self) -> Result<(), Finding> {
        let answer = self.capabilities().await?.execution_capabilities;
        if answer.is_some_and(|answer| answer.exec_enabled) {
            Ok(())
        } else {
            Err(Finding::Skipped("the server announces exec_enabled = false".into()))
        }
    }

    /// Uploads an action of this script.
    pub(super) async fn action(&self, script: &str) -> Result<Digest, Finding> {
        self.prepare(&Draft::of(script)?).await
    }

    pub(super) async fn prepare(&self, draft: &Draft) -> Result<Digest, Finding> {
        let [command, root, action] = draft.messages();
        self.put(&[&command, &root, &action]).await?;
        Ok(digest(&action))
    }

    pub(super) fn ask(&self, action: &Digest) -> ExecuteRequest {
        ExecuteRequest {
            instance_name: self.instance(),
            action_digest: Some(action.clone()),
            ..ExecuteRequest::default()
        }
    }

    pub(super) async fn execute(&self, asked: ExecuteRequest) -> Result<Waiting, Status> {
        let stream = self.execution().execute(self.scoped(asked)).await?.into_inner();
        Ok(Waiting::on(stream))
    }

    /// Executes what must not be refused before it begins.
    pub(super) async fn begin(&self, asked: ExecuteRequest) -> Result<Waiting, Finding> {
        let answer = self.execute(asked).await;
        answer.map_err(|status| Finding::broken(format!("Execute was refused: {}", format_status(&status))))
    }

    pub(super) async fn wait_execution(&self, name: &str) -> Result<Waiting, Status> {
        let asked = WaitExecutionRequest { name: name.to_owned() };
        let stream = self.execution().wait_execution(self.scoped(asked)).await?.into_inner();
        Ok(Waiting::on(stream))
    }

    /// What comes of an execution, wherever a refusal is told.
    pub(super) async fn outcome(
        &self,
        asked: ExecuteRequest,
    ) -> Result<Result<ExecuteResponse, Status>, Finding> {
        let waiting = match self.execute(asked).await {
            Ok(waiting) => waiting,
            Err(status) => return Ok(Err(status)),
        };
        match waiting.end().await {
            Ok(response) => Ok(match response.status.clone().filter(|status| status.code != 0) {
                Some(status) => Err(status_from_proto(&status)),
                None => Ok(response),
            }),
            Err(finding) => Err(finding),
        }
    }

    /// The result of an execution that must succeed.
    pub(super) async fn run(
        &self,
        asked: ExecuteRequest,
    ) -> Result<(ExecuteResponse, ActionResult), Finding> {
        let response = self
            .outcome(asked)
            .await?
            .map_err(|status| Finding::broken(format!("the execution failed: {}", format_status(&status))))?;
        match response.result.clone() {
            Some(result) => Ok((response, result)),
            None => Err(Finding::broken("the ExecuteResponse has neither a result nor a status")),
        }
    }

    /// What the command wrote to its standard output, inlined or not.
    pub(super) async fn stdout(&self, result: &ActionResult) -> Result<Vec<u8>, Finding> {
        match (&result.stdout_digest, result.stdout_raw.is_empty()) {
            (Some(digest), true) if digest.size_bytes > 0 => self.get(digest).await,
            _ => Ok(result.stdout_raw.clone()),
        }
    }

    /// The standard output of an execution that must succeed, and whether the result came from the cache.
    pub(super) async fn run_for_stdout(&self, asked: ExecuteRequest) -> Result<(Vec<u8>, bool), Finding> {
        let (response, result) = self.run(asked).await?;
        Ok((self.stdout(&result).await?, response.cached_result))
    }
}

/// A status within a message, as if it were the call's own.
fn status_from_proto(status: &bazel_remote_apis::google::rpc::Status) -> Status {
    Status::with_details(
        tonic::Code::from(status.code),
        status.message.clone(),
        status.encode_to_vec().into(),
    )
}
