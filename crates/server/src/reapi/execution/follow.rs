//! Streams the state of an operation to a client: at once, at every change of its stage, periodically while nothing
//! changes, and at its end (R32).

use std::sync::Arc;
use std::time::Duration;

use authority::{Scope, Task, TaskId, TaskState};
use blobs::DigestFunction;
use coordinator::{TaskDetail, WaitCondition as Until};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{inputs, operation};
use crate::convert::Problem;
use crate::reapi::Reapi;
use crate::reapi::inline_outputs::InlineOutputs;
use crate::reapi::messages::ActionResult;
use crate::reapi::messages::longrunning::Operation;
use crate::reapi::store::Store;
use execution::{ExecutionPayload, digest};

/// How often an unchanged operation is sent again.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Operations that are buffered for a client.
const BUFFERED: usize = 4;

pub(crate) type OperationStream = ReceiverStream<Result<Operation, Status>>;

/// A stream with one operation that is over.
pub(crate) fn at_once(operation: Operation) -> OperationStream {
    let (to_client, stream) = mpsc::channel(1);
    // The channel is new and has capacity.
    let _ = to_client.try_send(Ok(operation));
    ReceiverStream::new(stream)
}

/// Follows the operation until it is over, the client is gone, or the server stops, within the bound on all waits.
pub(crate) fn follow(
    reapi: Reapi,
    scope: Scope,
    task: TaskId,
    name: Arc<str>,
    wanted: InlineOutputs,
) -> OperationStream {
    let (to_client, stream) = mpsc::channel(BUFFERED);
    tokio::spawn(async move {
        let work = send_updates(&reapi, &scope, task, &name, &wanted, &to_client);
        let sent = tokio::select! {
            sent = reapi.app.waiting(&scope.tenant, KEEP_ALIVE, work) => match sent {
                Ok(Some(sent)) => sent,
                Ok(None) => Err(Status::unavailable("the server is about to stop; wait for the operation again")),
                Err(too_many) => Err(too_many.into()),
            },
            () = to_client.closed() => return,
        };
        if let Err(status) = sent {
            // The client may be gone.
            let _ = to_client.send(Err(status)).await;
        }
    });
    ReceiverStream::new(stream)
}

async fn send_updates(
    reapi: &Reapi,
    scope: &Scope,
    task: TaskId,
    name: &str,
    wanted: &InlineOutputs,
    to_client: &mpsc::Sender<Result<Operation, Status>>,
) -> Result<(), Status> {
    let handle = &reapi.app.handle;
    let mut detail = found(handle.task(scope.clone(), task).await, name)?;
    let mut sent = None;
    loop {
        let operation = match state(reapi, scope, &detail, name, wanted).await? {
            OperationState::Over(operation) => {
                let _ = to_client.send(Ok(operation)).await;
                return Ok(());
            }
            OperationState::Running(operation) => operation,
        };
        let state = detail.view.task.state();
        if sent != Some(state) {
            sent = Some(state);
            if to_client.send(Ok(operation)).await.is_err() {
                return Ok(());
            }
        }
        let last = detail.view.task.last;
        let wait = handle.wait_task(scope.clone(), task, Until::ChangeAfter(last), KEEP_ALIVE).await;
        detail = found(wait, name)?;
        if detail.view.task.last == last {
            sent = None;
        }
    }
}

pub(crate) enum OperationState {
    Running(Operation),
    Over(Operation),
}

/// The current state of an operation. An operation that its task no longer knows was canceled while others waited on.
pub(crate) async fn state(
    reapi: &Reapi,
    scope: &Scope,
    detail: &TaskDetail,
    name: &str,
    wanted: &InlineOutputs,
) -> Result<OperationState, Status> {
    let task = &detail.view.task;
    let payload = ExecutionPayload::decode(&task.payload).ok().ok_or_else(|| unknown(name))?;
    let digest = payload.action().ok();
    if !task.operations.iter().any(|operation| **operation == *name) {
        let response = operation::response(Err(Status::cancelled("the operation was cancelled")), false);
        return Ok(OperationState::Over(operation::done(name, digest.as_ref(), &response)));
    }
    let Some(mut outcome) = operation::outcome(task) else {
        return Ok(OperationState::Running(operation::running(name, &payload, task)));
    };
    let store = reapi.store(scope)?;
    if task.state() == TaskState::Completed {
        // The result is committed, so it is sent even if caching fails; the projection tries again.
        if let Err(why) = reapi.content.results.keep(scope, task).await {
            tracing::warn!(task = %task.id, why = why.message(), "a result is not in the action cache yet");
        }
        outcome = match (outcome, &digest) {
            (Ok(result), Some(digest)) => wanted.fill(&store, result, digest.function).await,
            (outcome, _) => outcome,
        };
    } else if operation::lacks_inputs(task)
        && let Some(digest) = &digest
    {
        outcome = Err(inputs::refusal(&inputs::missing_of_action(&store, digest).await?));
    }
    let mut response = operation::response(outcome, false);
    if task.state() != TaskState::Completed
        && let Some(digest) = &digest
    {
        response.result = partial_result(&store, task, wanted, digest.function).await;
    }
    Ok(OperationState::Over(operation::done(name, digest.as_ref(), &response)))
}

/// What a stopped command had written, as far as it is in the content store.
async fn partial_result(
    store: &Store,
    task: &Task,
    wanted: &InlineOutputs,
    function: DigestFunction,
) -> Option<ActionResult> {
    let mut result = operation::partial_result(task)?;
    for output in [&mut result.stdout_digest, &mut result.stderr_digest] {
        let Some(named) = output else { continue };
        let digest = digest::from_proto(Some(named), function, "an output").ok();
        let missing = store.missing(digest.as_slice()).await;
        if digest.is_none() || !missing.is_ok_and(|missing| missing.is_empty()) {
            *output = None;
        }
    }
    wanted.fill(store, result, function).await.ok()
}

/// The task of an operation, or NOT_FOUND.
pub(crate) fn found(
    task: Result<Option<Box<TaskDetail>>, coordinator::Unavailable>,
    name: &str,
) -> Result<Box<TaskDetail>, Status> {
    task.map_err(Problem::from)?.ok_or_else(|| unknown(name))
}

pub(crate) fn unknown(name: &str) -> Status {
    Status::not_found(format!("there is no operation {name:?}: it is long over, or it never was"))
}
