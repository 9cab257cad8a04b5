//! The callback contract: a task was pushed to a worker, and the worker calls back with the task's token. The contract
//! has no release.

use serde_json::{Value, json};

use crate::{Failure, HttpRequest, LeaseRef, ReportKind};

pub fn started(lease: &LeaseRef) -> HttpRequest {
    request(lease, "started")
}

pub fn heartbeat(lease: &LeaseRef) -> HttpRequest {
    request(lease, "heartbeat")
}

pub fn complete(lease: &LeaseRef, output: &Value) -> HttpRequest {
    request(lease, "completed").with("outcome", "SUCCEEDED").with("output", output.clone())
}

pub fn fail(lease: &LeaseRef, failure: &Failure) -> HttpRequest {
    let Failure { category, message, retryable } = failure;
    let error = json!({"category": category, "message": message, "retryable": retryable});
    request(lease, "completed").with("outcome", "FAILED").with("error", error)
}

/// `None` where the contract has no such report.
pub fn report(lease: &LeaseRef, kind: &ReportKind) -> Option<HttpRequest> {
    match kind {
        ReportKind::Completed(output) => Some(complete(lease, output)),
        ReportKind::Failed(failure) => Some(fail(lease, failure)),
        ReportKind::Released => None,
    }
}

fn request(lease: &LeaseRef, call: &str) -> HttpRequest {
    let body = json!({"attempt": lease.attempt, "workerId": lease.worker_id});
    let path = format!("/v1/tasks/{}/{call}", lease.task_id);
    HttpRequest { bearer_token: Some(lease.lease_id.clone()), ..HttpRequest::post(path, body) }
}
