//! A client that waits for an operation: told at once where it stands, at every change of its stage, from time to time
//! while nothing changes, and at its end (R32).

use std::sync::Arc;
use std::time::Duration;

use authority::{Scope, TaskId, TaskState};
use coordinator::{TaskDetail, WaitCondition as Until};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::payload::Payload;
use super::{inputs, operation};
use crate::convert::problem::Problem;
use crate::reapi::Reapi;
use crate::reapi::inline_outputs::InlineOutputs;
use crate::reapi::messages::longrunning::Operation;

/// How often a client is told that nothing has changed.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Operations that wait for a client to take them.
const BUFFERED: usize = 4;

pub type OperationStream = ReceiverStream<Result<Operation, Status>>;

/// A stream of one operation, which is over.
pub fn at_once(operation: Operation) -> OperationStream {
    let (to_client, stream) = mpsc::channel(1);
    // The receiver is right here and has room.
    let _ = to_client.try_send(Ok(operation));
    ReceiverStream::new(stream)
}

/// Follows the operation until it is over, the client is gone, or the server stops, within the bound on all waits.
pub fn follow(
    reapi: Reapi,
    scope: Scope,
    task: TaskId,
    name: Arc<str>,
    wanted: InlineOutputs,
) -> OperationStream {
    let (to_client, stream) = mpsc::channel(BUFFERED);
    tokio::spawn(async move {
        let work = tell(&reapi, &scope, task, &name, &wanted, &to_client);
        let told = tokio::select! {
            told = reapi.app().waiting(KEEP_ALIVE, work) => match told {
                Ok(Some(told)) => told,
                Ok(None) => Err(Status::unavailable("the server is about to stop; wait for the operation again")),
                Err(too_many) => Err(too_many.into()),
            },
            () = to_client.closed() => return,
        };
        if let Err(status) = told {
            // A client that is gone needs no last word.
            let _ = to_client.send(Err(status)).await;
        }
    });
    ReceiverStream::new(stream)
}

async fn tell(
    reapi: &Reapi,
    scope: &Scope,
    task: TaskId,
    name: &str,
    wanted: &InlineOutputs,
    to_client: &mpsc::Sender<Result<Operation, Status>>,
) -> Result<(), Status> {
    let handle = reapi.handle();
    let mut detail = found(handle.task(scope.clone(), task).await, name)?;
    let mut told = None;
    loop {
        let operation = match now(reapi, scope, &detail, name, wanted).await? {
            Now::Over(operation) => {
                let _ = to_client.send(Ok(operation)).await;
                return Ok(());
            }
            Now::Running(operation) => operation,
        };
        let state = detail.view.task.state();
        if told != Some(state) {
            told = Some(state);
            if to_client.send(Ok(operation)).await.is_err() {
                return Ok(());
            }
        }
        let last = detail.view.task.last;
        let wait = handle.wait_task(scope.clone(), task, Until::ChangeAfter(last), KEEP_ALIVE).await;
        detail = found(wait, name)?;
        if detail.view.task.last == last {
            told = None;
        }
    }
}

pub enum Now {
    Running(Operation),
    Over(Operation),
}

/// Where an operation stands. One whose task no longer knows its name was cancelled while others waited on.
pub async fn now(
    reapi: &Reapi,
    scope: &Scope,
    detail: &TaskDetail,
    name: &str,
    wanted: &InlineOutputs,
) -> Result<Now, Status> {
    let task = &detail.view.task;
    let payload = Payload::of(task).ok_or_else(|| unknown(name))?;
    let digest = payload.digest();
    if !task.operations.iter().any(|operation| **operation == *name) {
        let response = operation::response(Err(Status::cancelled("the operation was cancelled")), false);
        return Ok(Now::Over(operation::done(name, digest.as_ref(), &response)));
    }
    let Some(mut outcome) = operation::outcome(task) else {
        return Ok(Now::Running(operation::running(name, &payload, task)));
    };
    let store = reapi.store(scope)?;
    if task.state() == TaskState::Completed {
        // The result is committed and is told, whatever becomes of its entry; the ledger's effect tries that again.
        if let Err(why) = reapi.results().keep(scope, task).await {
            tracing::warn!(task = %task.id, why = why.message(), "a result is not in the action cache yet");
        }
        if let (Ok(result), Some(digest)) = (outcome, &digest) {
            outcome = wanted.fill(&store, result, digest.function).await;
        } else {
            outcome = operation::outcome(task).unwrap_or_else(|| Err(unknown(name)));
        }
    } else if operation::lacks_inputs(task)
        && let Some(digest) = &digest
    {
        outcome = Err(inputs::refusal(&inputs::missing_of_action(&store, digest).await?));
    }
    Ok(Now::Over(operation::done(name, digest.as_ref(), &operation::response(outcome, false))))
}

/// The task of an operation, which must be there.
pub fn found(
    task: Result<Option<Box<TaskDetail>>, coordinator::Unavailable>,
    name: &str,
) -> Result<Box<TaskDetail>, Status> {
    task.map_err(Problem::from)?.ok_or_else(|| unknown(name))
}

pub fn unknown(name: &str) -> Status {
    Status::not_found(format!("there is no operation {name:?}: it is long over, or it never was"))
}
