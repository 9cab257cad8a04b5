//! A restarted coordinator knows no workers, and every lease.

use serde_json::json;
use tonic::Code;
use wire::grpc::{HeartbeatRequest, RegisterWorkerRequest, UpdateTaskStatusRequest, Verdict};

use crate::support::{Served, ask, completed, is_refused, is_rejected, lease, registration};

#[tokio::test]
async fn s3_33_after_a_restart_a_worker_registers_again_and_its_leases_live_on() {
    let served = Served::start().await;
    let session = RegisterWorkerRequest { session_id: "s1".to_owned(), ..registration("w") };
    let mut client = served.client().await;
    client.register_worker(session.clone()).await.unwrap();
    served.submit("q").await;
    let held = lease(&mut client, "w", "q").await;

    let served = served.restart().await;
    let mut client = served.client().await;
    is_refused(client.lease_task(ask("w", "q")).await, Code::FailedPrecondition, "not_registered");
    let beat = HeartbeatRequest {
        worker_id: "w".to_owned(),
        session_id: "s1".to_owned(),
        ..HeartbeatRequest::default()
    };
    let told = client.report_heartbeat(beat.clone()).await.unwrap().into_inner();
    assert!(!told.registered && !told.should_shutdown, "{told:?}");
    assert_eq!((told.leases[0].lease_id.as_str(), told.leases[0].lost), (held.lease_id.as_str(), false));

    client.register_worker(session).await.unwrap();
    assert!(client.report_heartbeat(beat).await.unwrap().into_inner().registered);
    let told = client.update_task_status(completed("w", &held, "1")).await.unwrap().into_inner();
    assert_eq!(told.verdict(), Verdict::Committed);
    assert!(client.lease_task(ask("w", "q")).await.unwrap().into_inner().tasks.is_empty());
}

/// A worker of the plan that started again kept the leases of its earlier process: its heartbeats extended them for as long
/// as an attempt may take.
#[tokio::test]
async fn s3_9_a_worker_without_a_session_that_starts_again_gives_back_what_it_held() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let task_id = served.submit("q").await;
    lease(&mut client, "w", "q").await;
    client.register_worker(registration("w")).await.unwrap();
    let shown = served.task(&task_id).await;
    assert_eq!((&shown["state"], &shown["attempt"]), (&json!("WAITING"), &json!(1)));
    let history = served.get(&format!("/v1/tasks/{task_id}/history")).await;
    let last = history["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["type"], &last["cause"]), (&json!("LeaseReleased"), &json!("SESSION")));

    // It is told to register again by a server that has started again, so its attempt goes on.
    lease(&mut client, "w", "q").await;
    let served = served.restart().await;
    let mut client = served.client().await;
    is_refused(client.lease_task(ask("w", "q")).await, Code::FailedPrecondition, "not_registered");
    client.register_worker(registration("w")).await.unwrap();
    assert_eq!(served.task(&task_id).await["state"], "LEASED");

    // Both have started again.
    let served = served.restart().await;
    served.client().await.register_worker(registration("w")).await.unwrap();
    assert_eq!(served.task(&task_id).await["state"], "WAITING");
}

#[tokio::test]
async fn a_report_on_a_purged_task_is_told_how_the_task_ended() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    served.submit("q").await;
    let held = lease(&mut client, "w", "q").await;
    let report = UpdateTaskStatusRequest { lease_id: String::new(), ..completed("w", &held, "1") };
    client.update_task_status(report.clone()).await.unwrap();
    served.send("PUT", "/v1/queues/q", json!({"retentionMs": 0})).await;

    // A start purges before it serves.
    let served = served.restart().await;
    let mut client = served.worker("w").await;
    let answer = client.update_task_status(report).await;
    let message = answer.as_ref().unwrap_err().message().to_owned();
    is_rejected(answer, Code::NotFound, "task_purged");
    assert!(message.contains("ended COMPLETED at") && message.contains("was purged at"), "{message}");
}
