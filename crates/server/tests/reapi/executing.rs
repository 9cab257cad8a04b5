//! An execution from its request to its end, in every way that it can end.

use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2::platform::Property;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, ExecuteOperationMetadata, ExecuteRequest, ExecutionPolicy, Platform,
    execution_stage::Value as Stage,
};
use bazel_remote_apis::google::longrunning::CancelOperationRequest;
use prost::Message;
use server::reapi::Settings;
use tonic::Code;
use wire::grpc::{ErrorCategory, TaskStatus, UpdateTaskStatusRequest};

use crate::support::{Served, ask, digest};

fn exit(exit_code: i32) -> ActionResult {
    ActionResult { exit_code, ..ActionResult::default() }
}

fn stage(operation: &bazel_remote_apis::google::longrunning::Operation) -> Stage {
    let metadata = operation.metadata.as_ref().unwrap();
    ExecuteOperationMetadata::decode(&metadata.value[..]).unwrap().stage()
}

/// R32, R40, R41.
#[tokio::test]
async fn a_client_is_told_every_stage_and_then_the_result() {
    execute_to_the_end().await;
}

#[tokio::test]
async fn an_action_is_executed_at_a_node_that_does_not_own_the_ledger() {
    crate::support::nodes::through_an_edge(execute_to_the_end()).await;
}

async fn execute_to_the_end() {
    let served = Served::start().await;
    let action = served.action(&["true"]).await;
    let mut worker = served.worker("w").await;
    let mut waiting = served.execute(ask(&action)).await.unwrap();
    let queued = waiting.next().await;
    assert_eq!((stage(&queued), queued.done), (Stage::Queued, false));
    let task = worker.lease().await;
    assert_eq!(task.action_digest, format!("{}/{}", action.hash, action.size_bytes));
    let executing = waiting.next().await;
    assert_eq!((stage(&executing), executing.name.as_str()), (Stage::Executing, queued.name.as_str()));
    worker.complete(&task, exit(0)).await;
    let done = waiting.next().await;
    assert_eq!((stage(&done), done.done), (Stage::Completed, true));
    let response = crate::support::response(&done);
    assert_eq!((response.result.unwrap().exit_code, response.cached_result), (0, false));
    served.stop().await;
}

/// R30: what went wrong with the run is in the response, and never the stream's own status.
#[tokio::test]
async fn every_failure_has_its_code() {
    let served = Served::start().await;
    let mut worker = served.worker("w").await;
    for (category, code, expected) in [
        (ErrorCategory::Timeout, "timeout", Code::DeadlineExceeded),
        (ErrorCategory::Configuration, "bad_command", Code::FailedPrecondition),
        (ErrorCategory::Infrastructure, "", Code::Unavailable),
        // Clients would repeat anything else, and it would fail again.
        (ErrorCategory::UserCode, "", Code::FailedPrecondition),
        (ErrorCategory::UserCode, "result_rejected", Code::FailedPrecondition),
        (ErrorCategory::Infrastructure, "not_enough_resources", Code::FailedPrecondition),
    ] {
        let action = served.action(&["fails", code]).await;
        let waiting = served.execute(ask(&action)).await.unwrap();
        let task = worker.lease().await;
        worker
            .report(&task, |report| {
                report.status = TaskStatus::Failed.into();
                report.error_category = category.into();
                report.error_code = code.to_owned();
                report.error_message = "as it happens".to_owned();
                report.retryable = Some(false);
            })
            .await;
        let status = waiting.response().await.status.unwrap();
        assert_eq!((status.code, status.message.as_str()), (expected as i32, "as it happens"));
    }
    served.stop().await;
}

fn stopped(report: &mut UpdateTaskStatusRequest, code: &str, partial: &ActionResult) {
    report.status = TaskStatus::Failed.into();
    let is_timeout = code == "timeout";
    let category = if is_timeout { ErrorCategory::Timeout } else { ErrorCategory::Cancelled };
    report.error_category = category.into();
    report.error_code = code.to_owned();
    report.error_message = "as it happens".to_owned();
    report.retryable = Some(false);
    report.partial_progress_json = execution::result::encode(partial).unwrap().into();
}

/// R28, R30.
#[tokio::test]
async fn an_execution_that_ran_out_of_time_has_its_output_and_is_never_cached() {
    let served = Served::start().await;
    let mut worker = served.worker("w").await;
    let action = served.action(&["sleep"]).await;
    let partial = ActionResult {
        // Whatever the worker says, it is no result.
        exit_code: 0,
        stdout_digest: served.upload(&[b"so far"]).await.pop(),
        stderr_digest: Some(digest(b"gone")),
        ..ActionResult::default()
    };
    let mut waiting = served.execute(ExecuteRequest { inline_stdout: true, ..ask(&action) }).await.unwrap();
    let name = waiting.name().await;
    let task = worker.lease().await;
    worker.report(&task, |report| stopped(report, "timeout", &partial)).await;
    let response = waiting.response().await;
    assert_eq!(response.status.unwrap().code, Code::DeadlineExceeded as i32);
    let result = response.result.unwrap();
    assert_eq!(
        (&result.stdout_raw[..], result.stdout_digest),
        (&b"so far"[..], partial.stdout_digest.clone())
    );
    assert_eq!(result.stderr_digest, None, "it is not in the content store");
    assert_eq!(served.cached(&action).await.unwrap_err().code(), Code::NotFound);
    let served = served.restart().await;
    let again = served.wait_execution(&name).await.unwrap().response().await;
    assert_eq!(again.status.unwrap().code, Code::DeadlineExceeded as i32);
    assert_eq!(again.result.unwrap().stdout_digest, partial.stdout_digest);
    assert_eq!(served.cached(&action).await.unwrap_err().code(), Code::NotFound);
    served.stop().await;
}

/// R42.
#[tokio::test]
async fn a_cancelled_execution_has_its_output() {
    let served = Served::start().await;
    let mut worker = served.worker("w").await;
    let action = served.action(&["sleep"]).await;
    let partial = ActionResult {
        exit_code: 137,
        stdout_digest: served.upload(&[b"so far"]).await.pop(),
        ..ActionResult::default()
    };
    let mut waiting = served.execute(ask(&action)).await.unwrap();
    let name = waiting.name().await;
    let task = worker.lease().await;
    served.operations().await.cancel_operation(CancelOperationRequest { name }).await.unwrap();
    worker.report(&task, |report| stopped(report, "cancelled", &partial)).await;
    let response = waiting.response().await;
    assert_eq!(response.status.unwrap().code, Code::Cancelled as i32);
    let result = response.result.unwrap();
    assert_eq!((result.exit_code, result.stdout_digest), (137, partial.stdout_digest.clone()));
    served.stop().await;
}

/// An earlier attempt's output does not explain a later attempt's end.
#[tokio::test]
async fn an_execution_that_failed_otherwise_has_no_result() {
    let served = Served::start().await;
    let mut worker = served.worker("w").await;
    let action = served.action(&["fails"]).await;
    let waiting = served.execute(ask(&action)).await.unwrap();
    let task = worker.lease().await;
    let partial = ActionResult { stdout_raw: b"text".to_vec(), ..ActionResult::default() };
    worker
        .report(&task, |report| {
            stopped(report, "worker_broken", &partial);
            report.error_category = ErrorCategory::Infrastructure.into();
        })
        .await;
    let response = waiting.response().await;
    assert_eq!((response.status.unwrap().code, response.result), (Code::Unavailable as i32, None));
    served.stop().await;
}

#[tokio::test]
async fn r37_an_action_that_no_registered_worker_could_run_is_refused_and_the_property_named() {
    let settings = Settings { worker_grace: Duration::from_millis(100), ..Settings::default() };
    let served = Served::start_with(settings).await;
    let _worker = served.worker_offering("w", &[("OSFamily", "linux")]).await;
    let action = served
        .action_with(&["true"], |action| {
            let property = |name: &str, value: &str| Property { name: name.into(), value: value.into() };
            let properties = vec![property("OSFamily", "linux"), property("gpu", "1")];
            action.platform = Some(Platform { properties });
        })
        .await;
    let status = served.execute(ask(&action)).await.unwrap().response().await.status.unwrap();
    assert_eq!(status.code, Code::FailedPrecondition as i32);
    assert!(status.message.contains("gpu=1") && !status.message.contains("OSFamily"), "{}", status.message);
    served.stop().await;
}

#[tokio::test]
async fn r37_an_action_waits_for_a_worker_that_could_run_it() {
    let settings = Settings { worker_grace: Duration::from_millis(50), ..Settings::default() };
    let served = Served::start_with(settings).await;
    let mut busy = served.worker("busy").await;
    let first = served.execute(ask(&served.action(&["first"]).await)).await.unwrap();
    let task = busy.lease().await;
    let mut second = served.execute(ask(&served.action(&["second"]).await)).await.unwrap();
    assert!(!second.next().await.done);
    tokio::time::timeout(Duration::from_millis(400), second.next()).await.unwrap_err();
    busy.complete(&task, exit(0)).await;
    first.response().await;
    let task = busy.lease().await;
    busy.complete(&task, exit(0)).await;
    assert_eq!(second.response().await.result.unwrap().exit_code, 0);
    served.stop().await;
}

/// R36, R38.
#[tokio::test]
async fn timeouts_and_priorities_beyond_their_limits_are_refused_at_once() {
    let served = Served::start().await;
    let endless = served
        .action_with(&["true"], |action| {
            action.timeout =
                Some(bazel_remote_apis::google::protobuf::Duration { seconds: 1 << 40, nanos: 0 });
        })
        .await;
    let refused =
        |refused: Result<crate::support::Waiting, tonic::Status>| refused.err().expect("refused").code();
    assert_eq!(refused(served.execute(ask(&endless)).await), Code::InvalidArgument);
    let mut urgent = ask(&served.action(&["true"]).await);
    urgent.execution_policy = Some(ExecutionPolicy { priority: i32::MIN });
    assert_eq!(refused(served.execute(urgent).await), Code::InvalidArgument);
    assert_eq!(served.tasks().await, 0);
    served.stop().await;
}

/// A worker that falls silent loses its lease, and another one goes on (R32).
#[tokio::test]
async fn an_execution_goes_back_to_the_queue_when_its_worker_gives_it_back() {
    let served = Served::start().await;
    let (mut one, mut other) = (served.worker("one").await, served.worker("other").await);
    let mut waiting = served.execute(ask(&served.action(&["true"]).await)).await.unwrap();
    assert_eq!(stage(&waiting.next().await), Stage::Queued);
    let task = one.lease().await;
    assert_eq!(stage(&waiting.next().await), Stage::Executing);
    one.report(&task, |report| report.release = true).await;
    assert_eq!(stage(&waiting.next().await), Stage::Queued);
    let task = other.lease().await;
    other.complete(&task, exit(0)).await;
    assert_eq!(waiting.response().await.result.unwrap().exit_code, 0);
    served.stop().await;
}
