//! ReportHeartbeat: leases live by it, and learn from it that they should stop.

use authority::command::CancelTask;
use authority::{Command, HeldLease};
use coordinator::BatchItem;
use serde_json::json;
use tonic::Code;
use wire::grpc::{
    HeartbeatRequest, HeartbeatResponse, LeaseHeartbeat, LeaseTaskRequest, LeasedTask, SubmitTasksRequest,
    TaskStatus, UnregisterWorkerRequest,
};

use crate::support::{Client, Served, ask, completed, in_time, is_refused, lease, scope, task, update};

fn beat(worker: &str, leases: &[&LeasedTask]) -> HeartbeatRequest {
    let leases = leases
        .iter()
        .map(|task| LeaseHeartbeat { lease_id: task.lease_id.clone(), ..LeaseHeartbeat::default() });
    HeartbeatRequest { worker_id: worker.to_owned(), leases: leases.collect(), ..HeartbeatRequest::default() }
}

async fn heartbeat(client: &mut Client, beat: HeartbeatRequest) -> HeartbeatResponse {
    client.report_heartbeat(beat).await.unwrap().into_inner()
}

async fn leased(served: &Served, client: &mut Client, worker: &str) -> LeasedTask {
    served.submit("q").await;
    lease(client, worker, "q").await
}

#[tokio::test]
async fn s3_12_named_leases_are_extended_and_their_progress_is_shown() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client, "w").await;
    let mut request = beat("w", &[&held]);
    request.leases[0].progress_pct = Some(12.5);
    request.leases[0].message = "an eighth".to_owned();
    let response = heartbeat(&mut client, request).await;
    let status = &response.leases[0];
    assert_eq!((&status.lease_id, &status.task_id), (&held.lease_id, &held.task_id));
    assert!(!status.lost && !status.should_cancel && status.expires_at.is_some(), "{status:?}");
    let shown = served.task(&held.task_id).await;
    assert_eq!(shown["progress"]["progressPct"], 12.5);
    assert_eq!(shown["progress"]["message"], "an eighth");
}

/// C8, C25: workers of the plan name no leases, and keep them by being alive.
#[tokio::test]
async fn s3_12_a_heartbeat_without_names_keeps_all_leases_of_the_worker_alive() {
    let served = Served::start().await;
    served.send("PUT", "/v1/queues/q", json!({"leaseMs": 5_000})).await;
    let mut client = served.worker("w").await;
    let (one, two) = (leased(&served, &mut client, "w").await, leased(&served, &mut client, "w").await);
    let mut other = served.worker("v").await;
    let foreign = leased(&served, &mut other, "v").await;
    let first_end = one.lease_expires_at.unwrap();
    let kept = in_time(async {
        loop {
            let response = heartbeat(&mut client, beat("w", &[])).await;
            let ends: Vec<_> = response.leases.iter().map(|status| status.expires_at.unwrap()).collect();
            let later = |end: &prost_types::Timestamp| {
                (end.seconds, end.nanos) > (first_end.seconds + 6, first_end.nanos)
            };
            if ends.iter().all(later) {
                return response;
            }
        }
    })
    .await;
    let ids: Vec<_> = kept.leases.iter().map(|status| status.lease_id.as_str()).collect();
    assert_eq!(ids.len(), 2);
    assert!(ids.contains(&one.lease_id.as_str()) && ids.contains(&two.lease_id.as_str()));
    let ended = heartbeat(&mut other, beat("v", &[&foreign])).await;
    assert!(ended.leases[0].lost, "a lease that nobody beat for is over");
}

#[tokio::test]
async fn a_lease_that_is_over_is_lost_and_never_revived() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client, "w").await;
    client.update_task_status(completed("w", &held, "1")).await.unwrap();
    let response = heartbeat(&mut client, beat("w", &[&held])).await;
    assert!(response.leases[0].lost && response.leases[0].problem.is_none(), "{response:?}");
}

#[tokio::test]
async fn a_cancel_is_told_with_its_reason() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client, "w").await;
    served.send("POST", &format!("/v1/tasks/{}/cancel", held.task_id), json!({"reason": "enough"})).await;
    for request in [beat("w", &[&held]), beat("w", &[])] {
        let response = heartbeat(&mut client, request).await;
        let status = &response.leases[0];
        assert_eq!(
            (status.should_cancel, status.cancel_reason.as_str(), status.lost),
            (true, "enough", false)
        );
    }
}

/// Many leases may be cancelled at once, and what is said of them has to fit into one message.
#[tokio::test]
async fn a_long_reason_of_a_cancel_is_told_in_short() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client, "w").await;
    let reason = format!("x{}", "é".repeat(8_000));
    served.send("POST", &format!("/v1/tasks/{}/cancel", held.task_id), json!({"reason": reason})).await;
    let status = heartbeat(&mut client, beat("w", &[&held])).await.leases.remove(0);
    assert!(status.should_cancel && reason.starts_with(&status.cancel_reason));
    assert_eq!(status.cancel_reason.len(), 1_023, "as much of it as whole characters make of 1 KiB");
    let begun = update("w", &held, TaskStatus::Executing);
    let begun = client.update_task_status(begun).await.unwrap().into_inner();
    assert_eq!((begun.should_cancel, begun.cancel_reason), (true, status.cancel_reason));
}

/// C8: being alive keeps all leases, however many, and the answer still fits into a message.
#[tokio::test]
async fn all_of_very_many_leases_are_kept_and_those_that_should_stop_are_told_first() {
    const LEASES: usize = 4_000;
    let served = Served::start().await;
    served.send("PUT", "/v1/queues/q", json!({"leaseMs": 3_600_000, "cancelGraceMs": 3_600_000})).await;
    let mut client = served.worker("w").await;
    for _ in 0..LEASES / 100 {
        let tasks = SubmitTasksRequest { tasks: vec![task("q"); 100] };
        client.submit_tasks(tasks).await.unwrap();
        let poll = LeaseTaskRequest { max_tasks: 100, ..ask("w", "q") };
        assert_eq!(client.lease_task(poll).await.unwrap().into_inner().tasks.len(), 100);
    }
    let cancel = |held: &HeldLease| {
        let (scope, task, reason) = (scope(), held.lease.task, "x".repeat(1_024).into());
        BatchItem::Command(Command::CancelTask(CancelTask { scope, task, reason, by: None }))
    };
    let handle = &served.running.handle;
    let held = handle.leases(scope(), "w".into()).await.unwrap();
    // All but the first, which alone goes on.
    for some in held[1..].chunks(1_000) {
        handle.decide(some.iter().map(cancel).collect()).await.unwrap();
    }
    let response = heartbeat(&mut client, beat("w", &[])).await;
    assert!(response.leases.len() > 3_000 && response.leases.len() < LEASES, "{}", response.leases.len());
    assert!(response.leases.iter().all(|status| status.should_cancel));
    let leave = UnregisterWorkerRequest { worker_id: "w".to_owned(), ..UnregisterWorkerRequest::default() };
    let left = client.unregister_worker(leave).await.unwrap().into_inner();
    assert_eq!(left.released_leases as usize, LEASES);
}

#[tokio::test]
async fn what_is_wrong_with_one_lease_does_not_touch_the_others() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let held = leased(&served, &mut client, "w").await;
    let mut request = beat("w", &[&held, &held, &held]);
    request.leases[0].lease_id = "x".repeat(60);
    request.leases[1].progress_pct = Some(f64::NAN);
    let response = heartbeat(&mut client, request).await;
    let codes: Vec<_> = response
        .leases
        .iter()
        .map(|status| status.problem.as_ref().map(|problem| problem.code.as_str()))
        .collect();
    assert_eq!(codes, [Some("bad_lease_id"), Some("invalid_field"), None]);
    assert!(response.leases[0].lost && !response.leases[2].lost);
}

#[tokio::test]
async fn too_many_leases_and_nameless_workers_are_refused() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    let many = HeartbeatRequest { leases: vec![LeaseHeartbeat::default(); 1_001], ..beat("w", &[]) };
    is_refused(client.report_heartbeat(many).await, Code::InvalidArgument, "invalid_field");
    is_refused(client.report_heartbeat(beat("", &[])).await, Code::InvalidArgument, "invalid_field");
}
