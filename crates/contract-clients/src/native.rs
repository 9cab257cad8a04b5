//! The native contract: `/v1/leases`.

use serde_json::{Value, json};

use crate::{Failure, HttpRequest, LeaseRef, ReportKind};

/// Asks for up to `max_tasks` tasks of a queue.
pub fn lease(worker_id: &str, queue: &str, max_tasks: u32, wait_ms: u64) -> HttpRequest {
    let body = json!({"workerId": worker_id, "queues": [queue], "maxTasks": max_tasks, "waitMs": wait_ms});
    HttpRequest::post("/v1/leases", body)
}

pub fn complete(lease: &LeaseRef, result: &Value) -> HttpRequest {
    report_request(lease, "complete").with("result", result.clone())
}

pub fn fail(lease: &LeaseRef, failure: &Failure) -> HttpRequest {
    report_request(lease, "fail")
        .with("reason", failure.message.as_str())
        .with("category", json!(failure.category))
        .with("retryable", failure.retryable)
}

pub fn release(lease: &LeaseRef) -> HttpRequest {
    report_request(lease, "release")
}

pub fn report(lease: &LeaseRef, kind: &ReportKind) -> HttpRequest {
    match kind {
        ReportKind::Completed(result) => complete(lease, result),
        ReportKind::Failed(failure) => fail(lease, failure),
        ReportKind::Released => release(lease),
    }
}

pub fn heartbeat(lease: &LeaseRef) -> HttpRequest {
    HttpRequest::post(path(lease, "heartbeat"), json!({"workerId": lease.worker_id}))
}

fn report_request(lease: &LeaseRef, call: &str) -> HttpRequest {
    HttpRequest::post(path(lease, call), json!({"workerId": lease.worker_id, "taskId": lease.task_id}))
}

fn path(lease: &LeaseRef, call: &str) -> String {
    format!("/v1/leases/{}/{call}", lease.lease_id)
}
