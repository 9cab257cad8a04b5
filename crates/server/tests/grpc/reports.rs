//! UpdateTaskStatus: what is recorded of it, and what is answered.

use bytes::Bytes;
use prost::Message;
use serde_json::json;
use tonic::{Code, Request};
use wire::grpc::{
    ActionResult, ErrorCategory, LeasedTask, TaskState, TaskStatus, UpdateTaskStatusRequest, Verdict,
};

use crate::support::{Client, Served, completed, failed, in_time, is_rejected, lease, update};

async fn leased(served: &Served, client: &mut Client) -> LeasedTask {
    served.submit("q").await;
    lease(client, "w", "q").await
}

#[tokio::test]
async fn s3_11_36_a_worker_begins_and_completes_and_the_result_is_kept() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client).await;

    let told =
        client.update_task_status(update("w", &held, TaskStatus::Executing)).await.unwrap().into_inner();
    assert_eq!((told.verdict(), told.task_state()), (Verdict::Unspecified, TaskState::Leased));
    assert!(told.lease_expires_at.is_some() && !told.should_cancel, "{told:?}");
    assert_eq!(served.task(&held.task_id).await["lease"]["startedBy"], "w", "S3-36: it is executing");

    let told = client.update_task_status(completed("w", &held, r#"{"sum":3}"#)).await.unwrap().into_inner();
    assert_eq!((told.verdict(), told.task_state()), (Verdict::Committed, TaskState::Completed), "S3-22");
    let shown = served.task(&held.task_id).await;
    assert_eq!((shown["state"].as_str(), &shown["result"]), (Some("COMPLETED"), &json!({"sum": 3})));
    assert!(shown["lease"].is_null(), "the lease is dropped");
}

#[tokio::test]
async fn s3_20_36_an_action_result_is_kept_whole() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client).await;
    let result = ActionResult { exit_code: 7, stdout_raw: b"hello".to_vec(), ..ActionResult::default() };
    let report =
        UpdateTaskStatusRequest { result: Some(result.clone()), ..update("w", &held, TaskStatus::Completed) };
    let told = client.update_task_status(report.clone()).await.unwrap().into_inner();
    assert_eq!(told.verdict(), Verdict::Committed);
    let shown = served.task(&held.task_id).await;
    assert_eq!(shown["result"]["exitCode"], 7);
    let kept = base64::Engine::decode(
        &base64::engine::general_purpose::STANDARD,
        shown["result"]["actionResult"].as_str().unwrap(),
    );
    assert_eq!(ActionResult::decode(&kept.unwrap()[..]).unwrap(), result);
    let told = client.update_task_status(report).await.unwrap().into_inner();
    assert_eq!(told.verdict(), Verdict::Committed, "a repeat is a repeat");
}

#[tokio::test]
async fn s3_36_a_failure_is_kept_and_retried_as_the_policy_says() {
    let served = Served::start().await;
    let config = json!({"maxAttempts": 2, "backoff": {"initialMs": 0, "jitter": 0}});
    served.send("PUT", "/v1/queues/q", config).await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client).await;
    let report = UpdateTaskStatusRequest {
        error_category: ErrorCategory::Infrastructure.into(),
        error_code: "E7".to_owned(),
        ..failed("w", &held, "bad luck")
    };
    let told = client.update_task_status(report).await.unwrap().into_inner();
    assert_eq!((told.verdict(), told.task_state()), (Verdict::Committed, TaskState::Waiting));
    assert!(told.retry_at.is_some());
    let again = lease(&mut client, "w", "q").await;
    let told = client.update_task_status(failed("w", &again, "bad luck")).await.unwrap().into_inner();
    assert_eq!((told.task_state(), told.retry_at), (TaskState::Failed, None));
    let shown = served.task(&held.task_id).await;
    assert_eq!(
        (&shown["error"]["category"], &shown["error"]["message"]),
        (&json!("USER_CODE"), &json!("bad luck"))
    );
}

#[tokio::test]
async fn a_worker_that_says_not_to_retry_is_heard() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client).await;
    let report = UpdateTaskStatusRequest { retryable: Some(false), ..failed("w", &held, "no") };
    let told = client.update_task_status(report).await.unwrap().into_inner();
    assert_eq!((told.verdict(), told.task_state()), (Verdict::Committed, TaskState::Failed));
}

#[tokio::test]
async fn a_long_message_is_cut_and_loses_no_report() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client).await;
    let report =
        UpdateTaskStatusRequest { retryable: Some(false), ..failed("w", &held, &"x".repeat(16 * 1_024 + 1)) };
    let told = client.update_task_status(report.clone()).await.unwrap().into_inner();
    assert_eq!((told.verdict(), told.task_state()), (Verdict::Committed, TaskState::Failed));
    let shown = served.task(&held.task_id).await;
    assert_eq!(shown["error"]["message"], "x".repeat(16 * 1_024));
    let again = client.update_task_status(report).await.unwrap().into_inner();
    assert_eq!(again.verdict(), Verdict::Committed);
}

#[tokio::test]
async fn a_lease_is_given_back_at_no_cost() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client).await;
    let release = UpdateTaskStatusRequest { release: true, ..update("w", &held, TaskStatus::Unknown) };
    let told = client.update_task_status(release.clone()).await.unwrap().into_inner();
    assert_eq!((told.verdict(), told.task_state()), (Verdict::Unspecified, TaskState::Waiting));
    let again = client.update_task_status(release).await.unwrap().into_inner();
    assert_eq!(again.task_state(), TaskState::Waiting, "again is harmless");
    assert_eq!(lease(&mut client, "w", "q").await.attempt, 2);
}

#[tokio::test]
async fn a_cancelled_task_is_told_to_the_worker_that_begins_it() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client).await;
    served
        .send("POST", &format!("/v1/tasks/{}/cancel", held.task_id), json!({"reason": "changed my mind"}))
        .await;
    let told =
        client.update_task_status(update("w", &held, TaskStatus::Executing)).await.unwrap().into_inner();
    assert_eq!((told.should_cancel, told.cancel_reason.as_str()), (true, "changed my mind"));
    let stopped = UpdateTaskStatusRequest {
        error_category: ErrorCategory::Cancelled.into(),
        ..failed("w", &held, "stopped")
    };
    let told = client.update_task_status(stopped).await.unwrap().into_inner();
    assert_eq!((told.verdict(), told.task_state()), (Verdict::Committed, TaskState::Dead));
}

#[tokio::test]
async fn a_report_without_authority_is_answered_cancelled_and_is_no_error() {
    let served = Served::start().await;
    served.send("PUT", "/v1/queues/q", json!({"leaseMs": 100, "maxAttempts": 1})).await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client).await;
    let ended = in_time(served.get(&format!("/v1/tasks/{}?waitMs=30000", held.task_id))).await;
    assert_eq!(ended["reason"], "HEARTBEAT_TIMEOUT");
    for report in [completed("w", &held, "1"), update("w", &held, TaskStatus::Executing)] {
        let told = client.update_task_status(report).await.unwrap().into_inner();
        assert_eq!(told.verdict(), Verdict::Cancelled);
    }
    let position = served.position().await;
    client.update_task_status(completed("w", &held, "1")).await.unwrap();
    assert_eq!(served.position().await, position, "a lost lease is recorded once");
}

#[tokio::test]
async fn s3_21_malformed_reports_are_rejected_and_change_nothing() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client).await;
    let position = served.position().await;
    let both =
        UpdateTaskStatusRequest { result: Some(ActionResult::default()), ..completed("w", &held, "1") };
    let reports = [
        update("w", &held, TaskStatus::Unknown),
        UpdateTaskStatusRequest { status: 99, ..update("w", &held, TaskStatus::Completed) },
        UpdateTaskStatusRequest { release: true, ..completed("w", &held, "1") },
        both,
        completed("w", &held, "{"),
        completed("w", &held, r#"{"a":1,"a":2}"#),
        UpdateTaskStatusRequest { result_json: Bytes::from("[".repeat(100)), ..completed("w", &held, "") },
        UpdateTaskStatusRequest { error_category: 99, ..failed("w", &held, "x") },
        UpdateTaskStatusRequest { error_code: "\n".to_owned(), ..failed("w", &held, "x") },
        completed("", &held, "1"),
    ];
    for report in reports {
        is_rejected(client.update_task_status(report).await, Code::InvalidArgument, "invalid_field");
    }
    let large = Bytes::from(format!("\"{}\"", "x".repeat(1 << 20)));
    let large = UpdateTaskStatusRequest { result_json: large, ..completed("w", &held, "") };
    is_rejected(client.update_task_status(large).await, Code::InvalidArgument, "payload_too_large");
    assert_eq!(served.position().await, position);
    let told = client.update_task_status(completed("w", &held, "")).await.unwrap().into_inner();
    assert_eq!(told.verdict(), Verdict::Committed);
    assert!(served.task(&held.task_id).await["result"].is_null(), "no result is null");
}

#[tokio::test]
async fn s3_35_only_the_worker_with_the_lease_may_speak_of_its_attempt() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client).await;
    let other = leased(&served, &mut client).await;
    let position = served.position().await;
    let id = &held.lease_id;
    let flipped = format!("{}{}", &id[..id.len() - 1], if id.ends_with('A') { "B" } else { "A" });
    for status in [TaskStatus::Executing, TaskStatus::Completed, TaskStatus::Failed] {
        let forged = UpdateTaskStatusRequest { lease_id: flipped.clone(), ..update("w", &held, status) };
        is_rejected(client.update_task_status(forged).await, Code::PermissionDenied, "bad_lease_id");
        is_rejected(
            client.update_task_status(update("v", &held, status)).await,
            Code::PermissionDenied,
            "bad_lease_id",
        );
        let mixed = UpdateTaskStatusRequest { task_id: other.task_id.clone(), ..update("w", &held, status) };
        is_rejected(client.update_task_status(mixed).await, Code::PermissionDenied, "wrong_task");
        let later = UpdateTaskStatusRequest { attempt: 2, ..update("w", &held, status) };
        is_rejected(client.update_task_status(later).await, Code::PermissionDenied, "wrong_task");
        let mut foreign = Request::new(update("w", &held, status));
        foreign.metadata_mut().insert("lessor-tenant", "other".parse().unwrap());
        is_rejected(client.update_task_status(foreign).await, Code::PermissionDenied, "bad_lease_id");
    }
    assert_eq!(served.position().await, position);
    let told = client.update_task_status(completed("w", &held, "1")).await.unwrap().into_inner();
    assert_eq!(told.verdict(), Verdict::Committed);
}
