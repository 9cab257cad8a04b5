//! Leases, workers and pages of another tenant, over gRPC and by claims: they look like those that never were.

use bazel_remote_apis::google::longrunning::ListOperationsRequest;
use bazel_remote_apis::google::longrunning::operations_client::OperationsClient;
use serde_json::json;
use tonic::{Response, Status};
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{
    HeartbeatRequest, LeaseHeartbeat, TaskStatus, UpdateTaskStatusRequest, WorkHello, WorkRequest,
};

use crate::foreign_tenants::{Tenants, bytes, tenants};
use crate::key_limits::{beat, hello, leave, poll};
use crate::keyed::{channel, execute_some, in_time, with_key};

/// An answer or a status as it is sent, with a name replaced that the caller chose.
fn told<T: std::fmt::Debug>(answer: Result<Response<T>, Status>, name: &str) -> String {
    let shown = match answer {
        Ok(answer) => format!("{:?}", answer.into_inner()),
        // The details have the name of the task that was asked for.
        Err(status) => {
            let details = String::from_utf8_lossy(status.details()).into_owned();
            format!("{:?} {} {details}", status.code(), status.message())
        }
    };
    shown.replace(name, "NAME")
}

fn made_up(lease: &str) -> String {
    format!("A{}AAAA", &lease[1..lease.len() - 4])
}

#[tokio::test]
async fn a_lease_of_another_tenant_looks_made_up_over_grpc() {
    let Tenants { guarded, ada, eve } = tenants().await;
    let mut client = WorkerSchedulerClient::new(channel(&guarded).await);
    client.register_worker(with_key(&ada, hello("w"))).await.unwrap();
    let id = guarded.post(&ada, "/v1/tasks", json!({"queue": "q", "payload": 1})).await.text("taskId");
    let leased = client.lease_task(with_key(&ada, poll("w", "q"))).await.unwrap().into_inner();
    let lease = leased.tasks[0].lease_id.clone();
    let never = "01900000-0000-7000-8000-000000000001";
    let report = |task: &str, lease: &str| UpdateTaskStatusRequest {
        worker_id: "w".to_owned(),
        task_id: task.to_owned(),
        lease_id: lease.to_owned(),
        status: TaskStatus::Completed.into(),
        ..Default::default()
    };
    for (stolen, absent, task, other) in [
        // By its id, with and without the task, and by the task alone.
        (report("", &lease), report("", &made_up(&lease)), "-", "-"),
        (report(&id, &lease), report(&id, &made_up(&lease)), "-", "-"),
        (report(&id, ""), report(never, ""), &*id, never),
    ] {
        let stolen = told(client.update_task_status(with_key(&eve, stolen)).await, task);
        let absent = told(client.update_task_status(with_key(&eve, absent)).await, other);
        assert_eq!(stolen, absent);
    }
    let named = |lease: &str| {
        let leases = vec![LeaseHeartbeat { lease_id: lease.to_owned(), ..Default::default() }];
        HeartbeatRequest { leases, ..beat("w") }
    };
    let stolen = told(client.report_heartbeat(with_key(&eve, named(&lease))).await, &lease);
    let other = made_up(&lease);
    assert_eq!(stolen, told(client.report_heartbeat(with_key(&eve, named(&other))).await, &other));
    let mut in_streams = Vec::new();
    for lease in [&lease, &other] {
        let first = WorkHello { worker: Some(hello("w")), queues: vec!["q".to_owned()] };
        let beats = vec![LeaseHeartbeat { lease_id: lease.clone(), ..Default::default() }];
        let (reports, hello) = (vec![report("", lease)], Some(first));
        let said = WorkRequest { hello, reports, heartbeats: beats, ..Default::default() };
        let opened = client.work(with_key(&eve, tokio_stream::iter([said]))).await;
        let mut stream = opened.unwrap().into_inner();
        let mut answers = Vec::new();
        while let Some(answer) = in_time(stream.message()).await.unwrap() {
            answers.push(format!("{answer:?}").replace(lease, "LEASE"));
        }
        in_streams.push(answers);
    }
    assert_eq!(in_streams[0], in_streams[1]);
    assert_eq!(in_streams[0].len(), 2, "{in_streams:?}");
    // The lease is still its owner's.
    let done = client.update_task_status(with_key(&ada, report(&id, &lease))).await.unwrap().into_inner();
    assert_eq!(done.verdict(), wire::grpc::Verdict::Committed);
}

#[tokio::test]
async fn a_worker_of_another_tenant_looks_like_none_over_grpc() {
    let Tenants { guarded, ada, eve } = tenants().await;
    let mut client = WorkerSchedulerClient::new(channel(&guarded).await);
    client.register_worker(with_key(&ada, hello("worker-of-ada"))).await.unwrap();
    let mut answers = Vec::new();
    for name in ["worker-of-ada", "worker-of-bob"] {
        answers.push([
            told(client.report_heartbeat(with_key(&eve, beat(name))).await, name),
            told(client.lease_task(with_key(&eve, poll(name, "q"))).await, name),
            told(client.unregister_worker(with_key(&eve, leave(name))).await, name),
            told(client.register_worker(with_key(&eve, hello(name))).await, name),
        ]);
    }
    assert_eq!(answers[0], answers[1]);
    let own = client.report_heartbeat(with_key(&ada, beat("worker-of-ada"))).await.unwrap().into_inner();
    assert!(own.registered, "it was not touched");
}

#[tokio::test]
async fn a_claim_of_another_tenant_looks_made_up() {
    let Tenants { guarded, ada, eve } = tenants().await;
    assert_eq!(guarded.post(&ada, "/v1/tasks", json!({"queue": "q", "payload": 1})).await.status, 201);
    let claim = json!({"worker_id": "w", "streams": ["q"], "max_wait_ms": 0});
    let claimed = guarded.post(&ada, "/internal/worker/claim", claim).await;
    let [job, attempt, token] = ["job_id", "attempt_id", "lease_token"].map(|field| claimed.text(field));
    for (call, more) in [
        ("heartbeat", json!({})),
        ("complete", json!({"attempt_id": attempt, "result": 1})),
        ("fail", json!({"attempt_id": attempt, "error": {"message": "x"}})),
    ] {
        let ask = |token: &str| {
            let mut body = json!({"worker_id": "w", "job_id": job, "lease_token": token});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            bytes(guarded.request(&eve, "POST", &format!("/internal/worker/{call}")).json(&body))
        };
        let (stolen, absent) = (ask(&token).await, ask(&made_up(&token)).await);
        assert_eq!(stolen, absent, "{call}");
        assert_eq!(stolen.0, 403, "{call}: {stolen:?}");
    }
}

#[tokio::test]
async fn a_page_of_operations_of_another_tenant_looks_made_up() {
    let Tenants { guarded, ada, eve } = tenants().await;
    let mut streams = Vec::new();
    for argument in ["1", "2"] {
        streams.push(execute_some(&guarded, &ada, argument).await);
    }
    let mut operations = OperationsClient::new(channel(&guarded).await);
    let page = |token: &str| ListOperationsRequest {
        page_size: 1,
        page_token: token.to_owned(),
        ..ListOperationsRequest::default()
    };
    let first = operations.list_operations(with_key(&ada, page(""))).await.unwrap().into_inner();
    let token = first.next_page_token;
    assert!(first.operations.len() == 1 && !token.is_empty(), "{token}");
    let next = operations.list_operations(with_key(&ada, page(&token))).await.unwrap().into_inner();
    assert_eq!(next.operations.len(), 1, "its owner turns the page");
    let other = "A".repeat(token.len());
    let stolen = told(operations.list_operations(with_key(&eve, page(&token))).await, &token);
    assert_eq!(stolen, told(operations.list_operations(with_key(&eve, page(&other))).await, &other));
    assert!(stolen.starts_with("InvalidArgument"), "{stolen}");
}
