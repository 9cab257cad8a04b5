//! Executes an action and waits for its end.
//!
//! If the connection breaks, the operation is found again by its name, which survives a restart of the server. The
//! action is executed again only if the server has forgotten the operation.

use std::time::{Duration, Instant};

use bazel_remote_apis::google;
use bazel_remote_apis::google::longrunning::{Operation, operation};
use execution::reapi::execution_stage::Value as Stage;
use execution::reapi::{ExecuteOperationMetadata, ExecuteRequest, ExecuteResponse, WaitExecutionRequest};
use prost::Message;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use super::error::Error;
use super::progress::Progress;
use super::remote::{Remote, cause};
use crate::client;

/// How long the server may be unreachable: enough for a restart.
const PATIENCE: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// After so long without a message the stream is opened again; the server sends messages more often.
const MAX_SILENCE: Duration = Duration::from_secs(90);
/// How long it may take to find a worker before the user is notified.
const LATE: Duration = Duration::from_secs(3);
/// How often an execution is requested again whose operation the server has lost.
const MAX_FORGOTTEN: u32 = 3;

pub(super) struct Follower<'a> {
    remote: &'a Remote,
    progress: &'a Progress,
    stage: Option<Stage>,
    last_message: Instant,
    pause: Duration,
    begun: Instant,
    /// Whether the user was notified that no worker runs it yet.
    is_late: bool,
}

impl<'a> Follower<'a> {
    pub(super) fn new(remote: &'a Remote, progress: &'a Progress) -> Follower<'a> {
        let now = Instant::now();
        Follower {
            remote,
            progress,
            stage: None,
            last_message: now,
            pause: FIRST_PAUSE,
            begun: now,
            is_late: false,
        }
    }

    /// The response of the execution, whatever its status.
    pub(super) async fn run(mut self, request: &ExecuteRequest) -> Result<ExecuteResponse, Error> {
        let mut forgotten = 0;
        loop {
            let lost = match self.attend(request).await {
                Ok(Some(operation)) => return response(operation),
                Ok(None) => Status::unavailable("the server ended the stream"),
                Err(status) => status,
            };
            let is_forgotten = lost.code() == Code::NotFound && self.remote.operation().is_some();
            if is_forgotten && forgotten < MAX_FORGOTTEN {
                forgotten += 1;
                self.remote.set_operation(None);
            } else if !is_transient(lost.code()) {
                return Err(lost.into());
            }
            if self.last_message.elapsed() > PATIENCE {
                let (url, seconds, why) = (self.remote.url.clone(), PATIENCE.as_secs(), cause(&lost));
                return Err(client::Error::Silent { url, seconds, why }.into());
            }
            if self.pause == FIRST_PAUSE {
                self.progress.line(format_args!("the server is asked again ({})", cause(&lost)));
            }
            tokio::time::sleep(self.pause).await;
            self.pause = MAX_PAUSE.min(self.pause * 2);
        }
    }

    /// Follows one stream to its end, and gives the operation if it is over.
    async fn attend(&mut self, request: &ExecuteRequest) -> Result<Option<Operation>, Status> {
        let slow = |_| Status::unavailable("the server does not answer");
        let mut stream = timeout(MAX_SILENCE, self.open(request)).await.map_err(slow)??;
        loop {
            let next = tokio::select! {
                next = timeout(MAX_SILENCE, stream.message()) => next.map_err(slow)??,
                () = self.no_worker() => {
                    self.is_late = true;
                    self.progress.line_unless_seen("the execution waits for a worker");
                    continue;
                }
            };
            let Some(operation) = next else { return Ok(None) };
            self.last_message = Instant::now();
            self.pause = FIRST_PAUSE;
            self.remote.set_operation(Some(&operation.name));
            if operation.done {
                return Ok(Some(operation));
            }
            self.show(&operation);
        }
    }

    /// Resolves once, when the user should be notified that no worker runs it.
    async fn no_worker(&self) {
        if self.is_late || self.stage == Some(Stage::Executing) {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep_until((self.begun + LATE).into()).await;
    }

    async fn open(&self, request: &ExecuteRequest) -> Result<Streaming<Operation>, Status> {
        let mut client = self.remote.client.execution();
        let stream = match self.remote.operation() {
            None => {
                self.remote.set_requested();
                client.execute(self.remote.request(request.clone())).await
            }
            Some(name) => client.wait_execution(self.remote.request(WaitExecutionRequest { name })).await,
        };
        stream.map(tonic::Response::into_inner)
    }

    fn show(&mut self, operation: &Operation) {
        let metadata = operation.metadata.as_ref();
        let metadata = metadata.and_then(|any| ExecuteOperationMetadata::decode(&any.value[..]).ok());
        let Some(metadata) = metadata else { return };
        let stage = metadata.stage();
        if self.stage.replace(stage) == Some(stage) {
            return;
        }
        let worker = metadata.partial_execution_metadata.map(|about| about.worker).unwrap_or_default();
        self.progress.wait(&match (stage, worker.as_str()) {
            (Stage::CacheCheck, _) => "Looking into the cache".to_owned(),
            (Stage::Executing, "") => "Running".to_owned(),
            (Stage::Executing, worker) => format!("Running on {worker}"),
            _ => "Waiting for a worker".to_owned(),
        });
    }
}

fn response(operation: Operation) -> Result<ExecuteResponse, Error> {
    match operation.result {
        Some(operation::Result::Response(any)) => {
            ExecuteResponse::decode(&any.value[..]).map_err(Error::nonsense)
        }
        Some(operation::Result::Error(status)) => Err(self::status(&status).into()),
        None => Err(Error::nonsense("an operation is over and has no result")),
    }
}

/// A status in a message, as the status of a call.
pub(super) fn status(proto: &google::rpc::Status) -> Status {
    Status::with_details(Code::from(proto.code), proto.message.clone(), proto.encode_to_vec().into())
}

/// The codes of a server that restarts or is full, and of a lost connection.
fn is_transient(code: Code) -> bool {
    use Code::{Aborted, Cancelled, Internal, ResourceExhausted, Unavailable, Unknown};
    matches!(code, Unavailable | Aborted | Cancelled | Internal | ResourceExhausted | Unknown)
}
