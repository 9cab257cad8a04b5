//! Workers that repeat, replay, forge, mix up and lie: nothing is accepted that must not be, and the task ends right.

use serde_json::json;
use tonic::{Code, Request};
use wire::grpc::{LeasedTask, TaskStatus, UpdateTaskStatusRequest, Verdict};

use crate::support::{Client, Served, completed, failed, is_rejected, lease, update};

async fn leased(served: &Served, client: &mut Client, worker: &str) -> LeasedTask {
    served.submit("q").await;
    lease(client, worker, "q").await
}

async fn verdict(client: &mut Client, report: UpdateTaskStatusRequest) -> Verdict {
    client.update_task_status(report).await.unwrap().into_inner().verdict()
}

#[tokio::test]
async fn s0_26_a_repeated_report_gets_its_verdict_again_and_records_nothing() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client, "w").await;
    assert_eq!(verdict(&mut client, completed("w", &held, r#"{"a":1,"b":[2]}"#)).await, Verdict::Committed);
    let position = served.position().await;
    assert_eq!(
        verdict(&mut client, completed("w", &held, r#"{ "b":[2.0], "a":1 }"#)).await,
        Verdict::Committed
    );
    assert_eq!(served.position().await, position);
}

#[tokio::test]
async fn s0_14_another_story_of_the_same_attempt_is_rejected() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client, "w").await;
    assert_eq!(verdict(&mut client, completed("w", &held, "1")).await, Verdict::Committed);
    let position = served.position().await;
    for story in [completed("w", &held, "2"), failed("w", &held, "no")] {
        is_rejected(client.update_task_status(story).await, Code::FailedPrecondition, "another_story");
    }
    assert_eq!(served.position().await, position);
}

#[tokio::test]
async fn s3_35_only_the_worker_with_the_lease_may_speak_of_its_attempt() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client, "w").await;
    let other = leased(&served, &mut client, "w").await;
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
    assert_eq!(verdict(&mut client, completed("w", &held, "1")).await, Verdict::Committed);
}

#[tokio::test]
async fn an_unknown_task_is_not_found() {
    let (one, other) = (Served::start().await, Served::start().await);
    let mut client = one.worker("w").await;
    let held = leased(&one, &mut client, "w").await;
    let mut elsewhere = other.worker("w").await;
    is_rejected(
        elsewhere.update_task_status(completed("w", &held, "1")).await,
        Code::NotFound,
        "unknown_task",
    );
}

#[tokio::test]
async fn reports_of_an_older_attempt_are_cancelled_in_whatever_order_they_come() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let old = leased(&served, &mut client, "w").await;
    let release = UpdateTaskStatusRequest { release: true, ..update("w", &old, TaskStatus::Unknown) };
    client.update_task_status(release).await.unwrap();
    let new = lease(&mut client, "w", "q").await;
    assert_eq!((&new.task_id, new.attempt), (&old.task_id, 2));
    assert!(new.fencing_token > old.fencing_token);
    assert_eq!(verdict(&mut client, completed("w", &old, "1")).await, Verdict::Cancelled);
    assert_eq!(verdict(&mut client, update("w", &old, TaskStatus::Executing)).await, Verdict::Cancelled);
    assert_eq!(verdict(&mut client, completed("w", &new, "2")).await, Verdict::Committed);
    assert_eq!(verdict(&mut client, completed("w", &old, "1")).await, Verdict::Cancelled);
    assert_eq!(served.task(&new.task_id).await["result"], 2);
}

/// A lease from one contract may be reported through another when the identity matches, and a repeat is a repeat.
#[tokio::test]
async fn a12_a_lease_of_this_contract_is_reported_through_another_and_repeated_here() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client, "w").await;
    let path = format!("/v1/leases/{}/complete", held.lease_id);
    let told = served.send("POST", &path, json!({"workerId": "w", "result": {"a": 1}})).await;
    assert_eq!(told["verdict"], "COMMITTED");
    assert_eq!(verdict(&mut client, completed("w", &held, r#"{"a":1}"#)).await, Verdict::Committed);

    served.submit("q").await;
    let leases = served.send("POST", "/v1/leases", json!({"workerId": "w", "queues": ["q"]})).await;
    let lease = &leases["leases"][0];
    let report = UpdateTaskStatusRequest {
        worker_id: "w".to_owned(),
        lease_id: lease["leaseId"].as_str().unwrap().to_owned(),
        status: TaskStatus::Failed.into(),
        error_message: "no".to_owned(),
        ..UpdateTaskStatusRequest::default()
    };
    assert_eq!(verdict(&mut client, report).await, Verdict::Committed);
    let path = format!("/v1/leases/{}/fail", lease["leaseId"].as_str().unwrap());
    let told = served.send("POST", &path, json!({"workerId": "w", "reason": "no"})).await;
    assert_eq!(told["verdict"], "COMMITTED", "{told}");
}
