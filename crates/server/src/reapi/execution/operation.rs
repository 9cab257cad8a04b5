//! An operation as clients see it: a view of a task, so it survives whatever the ledger survives (R29 to R33, R40, R41).

use authority::{Category, DeadReason, Phase, Task, TaskError, Time};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde::Deserialize;
use tonic::{Code, Status};

use super::payload::Payload;
use crate::reapi::digest;
use crate::reapi::messages::longrunning::{Operation, operation};
use crate::reapi::messages::{
    self, ActionResult, ExecuteOperationMetadata, ExecuteResponse, ExecutedActionMetadata,
    execution_stage::Value as Stage, pack,
};

/// What a worker reports when it ran out of the action's time.
pub const TIMEOUT_CODE: &str = "timeout";
/// What a worker reports when inputs were gone by the time it fetched them.
pub const MISSING_INPUTS_CODE: &str = "missing_inputs";

/// How an execution ended: with a result, or with a status that says why there is none.
pub type Outcome = Result<ActionResult, Status>;

/// The outcome of a task that is over; none while it is not.
pub fn outcome(task: &Task) -> Option<Outcome> {
    match &task.phase {
        Phase::Waiting { .. } | Phase::Leased(_) => None,
        Phase::Completed { result, .. } => Some(result_of(result, task.created_at)),
        Phase::Failed { .. } => Some(Err(failed(task.last_error.as_deref()))),
        Phase::Dead { reason, detail, .. } => Some(Err(dead(*reason, detail.as_deref()))),
    }
}

/// The result as a worker reported it and the ledger holds it. When it was queued is not the worker's to say (R52).
pub fn result_of(result: &[u8], queued_at: Time) -> Outcome {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kept<'a> {
        action_result: &'a str,
    }
    let kept: Option<Kept> = serde_json::from_slice(result).ok();
    let message = kept.and_then(|kept| STANDARD.decode(kept.action_result).ok());
    let read = message.and_then(|message| ActionResult::decode(&message[..]).ok());
    let mut read =
        read.ok_or_else(|| Status::internal("the worker reported something that is no result of an action"))?;
    if let Some(metadata) = &mut read.execution_metadata {
        metadata.queued_timestamp = Some(messages::timestamp(queued_at));
    }
    Ok(read)
}

fn failed(error: Option<&TaskError>) -> Status {
    let Some(error) = error else { return Status::internal("the execution failed") };
    let code = match (error.code.as_deref(), error.category) {
        (Some(TIMEOUT_CODE), _) | (_, Category::Timeout) => Code::DeadlineExceeded,
        (Some(MISSING_INPUTS_CODE), _) | (_, Category::Configuration) => Code::FailedPrecondition,
        (_, Category::Infrastructure) => Code::Unavailable,
        (_, Category::Cancelled) => Code::Cancelled,
        (_, Category::UserCode | Category::DataQuality) => Code::Internal,
    };
    Status::new(code, error.message.to_string())
}

fn dead(reason: DeadReason, detail: Option<&str>) -> Status {
    let detail = |otherwise: &str| detail.unwrap_or(otherwise).to_owned();
    match reason {
        DeadReason::Cancelled | DeadReason::CancelTimeout => {
            Status::cancelled(detail("the execution was cancelled"))
        }
        DeadReason::HeartbeatTimeout => Status::unavailable(detail(
            "each worker that was given this action fell silent before it reported a result",
        )),
        DeadReason::Deadline => Status::deadline_exceeded(detail("the task's deadline has passed")),
        DeadReason::Killed => Status::failed_precondition(detail("an operator ended the execution")),
    }
}

/// Whether the execution failed because inputs were gone when a worker fetched them.
pub fn lacks_inputs(task: &Task) -> bool {
    matches!(task.phase, Phase::Failed { .. })
        && task.last_error.as_ref().is_some_and(|error| error.code.as_deref() == Some(MISSING_INPUTS_CODE))
}

/// The operation of this name while it waits for the task.
pub fn running(name: &str, payload: &Payload, task: &Task) -> Operation {
    let stage = match &task.phase {
        Phase::Leased(_) => Stage::Executing,
        _ => Stage::Queued,
    };
    let mut partial = ExecutedActionMetadata {
        queued_timestamp: Some(messages::timestamp(task.created_at)),
        ..ExecutedActionMetadata::default()
    };
    if let Phase::Leased(lease) = &task.phase {
        partial.worker = lease.worker.to_string();
        partial.worker_start_timestamp = Some(messages::timestamp(lease.granted_at));
    }
    let metadata = metadata(stage, payload.digest().as_ref(), Some(partial));
    Operation { name: name.to_owned(), metadata: Some(metadata), done: false, result: None }
}

/// The operation once it is over.
pub fn done(name: &str, digest: Option<&blobs::Digest>, response: &ExecuteResponse) -> Operation {
    Operation {
        name: name.to_owned(),
        metadata: Some(metadata(Stage::Completed, digest, None)),
        done: true,
        result: Some(operation::Result::Response(pack("ExecuteResponse", response))),
    }
}

pub fn response(outcome: Outcome, cached_result: bool) -> ExecuteResponse {
    match outcome {
        Ok(result) => ExecuteResponse {
            result: Some(result),
            cached_result,
            status: Some(messages::rpc::Status::default()),
            ..ExecuteResponse::default()
        },
        Err(why) => ExecuteResponse {
            message: why.message().to_owned(),
            status: Some(messages::status(&why)),
            ..ExecuteResponse::default()
        },
    }
}

fn metadata(
    stage: Stage,
    action: Option<&blobs::Digest>,
    partial_execution_metadata: Option<ExecutedActionMetadata>,
) -> messages::Any {
    pack(
        "ExecuteOperationMetadata",
        &ExecuteOperationMetadata {
            stage: stage.into(),
            action_digest: action.map(digest::to_proto),
            digest_function: action.map_or(0, |action| digest::function_to_proto(action.function).into()),
            partial_execution_metadata,
            ..ExecuteOperationMetadata::default()
        },
    )
}
