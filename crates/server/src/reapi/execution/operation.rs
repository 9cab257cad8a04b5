//! Converts tasks to operations. An operation is a view of a task, so it is as durable as the ledger (R29 to R33, R40,
//! R41).

use authority::{Category, DeadReason, Phase, Task, TaskError, Time};
use execution::{ExecutionPayload, Failure, any, digest, result};
use tonic::{Code, Status};

use crate::reapi::messages::longrunning::{Operation, operation};
use crate::reapi::messages::{
    self, ActionResult, ExecuteOperationMetadata, ExecuteResponse, ExecutedActionMetadata,
    execution_stage::Value as Stage,
};

/// A result, or the status that says why there is none.
pub(crate) type Outcome = Result<ActionResult, Status>;

/// None while the task is not over.
pub(crate) fn outcome(task: &Task) -> Option<Outcome> {
    match &task.phase {
        Phase::Waiting { .. } | Phase::Leased(_) => None,
        Phase::Completed { result, .. } => Some(result_of(result, task.created_at)),
        Phase::Failed { .. } => Some(Err(failed(task.last_error.as_deref()))),
        Phase::Dead { reason, detail, .. } => Some(Err(dead(*reason, detail.as_deref()))),
    }
}

pub(crate) fn result_of(result: &[u8], queued_at: Time) -> Outcome {
    let mut decoded = result::decode(result)
        .map_err(|_| Status::internal("the worker reported a result that is not the result of an action"))?;
    set_queued_at(&mut decoded, queued_at);
    Ok(decoded)
}

/// The server knows when the execution was queued; what the worker reports does not count (R52).
pub(crate) fn set_queued_at(result: &mut ActionResult, queued_at: Time) {
    if let Some(metadata) = &mut result.execution_metadata {
        metadata.queued_timestamp = Some(messages::timestamp(queued_at));
    }
}

fn failed(error: Option<&TaskError>) -> Status {
    let Some(error) = error else { return Status::internal("the execution failed") };
    // Clients repeat what is INTERNAL or UNAVAILABLE; the attempts of what may pass by itself are used up.
    let code = match (error.code.as_deref(), error.category) {
        (Some(Failure::TIMEOUT), _) | (_, Category::Timeout) => Code::DeadlineExceeded,
        (Some(Failure::MISSING_INPUTS | Failure::NOT_ENOUGH_RESOURCES), _) => Code::FailedPrecondition,
        (_, Category::Infrastructure) => Code::Unavailable,
        (_, Category::Cancelled) => Code::Cancelled,
        (_, Category::Configuration | Category::UserCode | Category::DataQuality) => Code::FailedPrecondition,
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

/// What a stopped command had written, if its worker reported it.
pub(crate) fn partial_result(task: &Task) -> Option<ActionResult> {
    let error = task.last_error.as_ref().filter(|_| task.is_final())?;
    if !matches!(error.category, Category::Timeout | Category::Cancelled) {
        return None;
    }
    let reported = result::decode(task.partial_progress()?).ok()?;
    let mut result = ActionResult {
        exit_code: reported.exit_code,
        stdout_raw: reported.stdout_raw,
        stdout_digest: reported.stdout_digest,
        stderr_raw: reported.stderr_raw,
        stderr_digest: reported.stderr_digest,
        execution_metadata: reported.execution_metadata,
        ..ActionResult::default()
    };
    set_queued_at(&mut result, task.created_at);
    Some(result)
}

/// Whether the execution failed because inputs were missing when a worker fetched them.
pub(crate) fn lacks_inputs(task: &Task) -> bool {
    matches!(task.phase, Phase::Failed { .. })
        && task
            .last_error
            .as_ref()
            .is_some_and(|error| error.code.as_deref() == Some(Failure::MISSING_INPUTS))
}

pub(crate) fn running(name: &str, payload: &ExecutionPayload, task: &Task) -> Operation {
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
    let metadata = metadata(stage, payload.action().ok().as_ref(), Some(partial));
    Operation { name: name.to_owned(), metadata: Some(metadata), done: false, result: None }
}

pub(crate) fn done(name: &str, digest: Option<&blobs::Digest>, response: &ExecuteResponse) -> Operation {
    Operation {
        name: name.to_owned(),
        metadata: Some(metadata(Stage::Completed, digest, None)),
        done: true,
        result: Some(operation::Result::Response(any::pack(
            "build.bazel.remote.execution.v2.ExecuteResponse",
            response,
        ))),
    }
}

pub(crate) fn response(outcome: Outcome, cached_result: bool) -> ExecuteResponse {
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
    any::pack(
        "build.bazel.remote.execution.v2.ExecuteOperationMetadata",
        &ExecuteOperationMetadata {
            stage: stage.into(),
            action_digest: action.map(digest::to_proto),
            digest_function: action.map_or(0, |action| digest::function_to_proto(action.function).into()),
            partial_execution_metadata,
            ..ExecuteOperationMetadata::default()
        },
    )
}
