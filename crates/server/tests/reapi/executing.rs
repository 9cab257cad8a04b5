//! An execution from its request to its end, in every way that it can end.

use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2::platform::Property;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, ExecuteOperationMetadata, ExecutionPolicy, Platform, execution_stage::Value as Stage,
};
use prost::Message;
use server::reapi::Settings;
use tonic::Code;
use wire::grpc::{ErrorCategory, TaskStatus};

use crate::support::{Served, ask};

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
        (ErrorCategory::UserCode, "", Code::Internal),
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
