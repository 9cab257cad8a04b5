//! The claim contract: `/internal/worker`, one job at a time. The contract has no release.

use serde_json::{Value, json};
use wire::{ClaimJob, HeartbeatJob, JobError};

use crate::{Failure, HttpRequest, LeaseRef, ReportKind};

/// Asks for one job of these streams, in the order of their priority.
pub fn claim(worker_id: &str, streams: &[&str], max_wait_ms: u64, request_id: Option<&str>) -> HttpRequest {
    let claim = ClaimJob {
        worker_id: worker_id.to_owned(),
        streams: streams.iter().map(|stream| (*stream).to_owned()).collect(),
        max_wait_ms: Some(max_wait_ms),
        request_id: request_id.map(str::to_owned),
        ..ClaimJob::default()
    };
    HttpRequest::post(path("claim"), claim)
}

pub fn complete(lease: &LeaseRef, result: &Value) -> HttpRequest {
    report_on(lease, "complete").with("result", result.clone())
}

/// Reports a failure. The contract has no categories.
pub fn fail(lease: &LeaseRef, failure: &Failure) -> HttpRequest {
    let error = JobError {
        message: failure.message.clone(),
        retryable: Some(failure.retryable),
        ..JobError::default()
    };
    report_on(lease, "fail").with("error", json!(error))
}

/// `None` where the contract has no such report.
pub fn report(lease: &LeaseRef, kind: &ReportKind) -> Option<HttpRequest> {
    match kind {
        ReportKind::Completed(result) => Some(complete(lease, result)),
        ReportKind::Failed(failure) => Some(fail(lease, failure)),
        ReportKind::Released => None,
    }
}

pub fn heartbeat(lease: &LeaseRef) -> HttpRequest {
    let LeaseRef { lease_id, task_id, worker_id, .. } = lease.clone();
    HttpRequest::post(path("heartbeat"), HeartbeatJob { worker_id, job_id: task_id, lease_token: lease_id })
}

/// A report without a result or an error. The attempt id is the one that Lessor gives; other coordinators may have other ids.
pub fn report_on(lease: &LeaseRef, call: &str) -> HttpRequest {
    let body = json!({
        "worker_id": lease.worker_id,
        "job_id": lease.task_id,
        "attempt_id": format!("{}:{}", lease.task_id, lease.attempt),
        "lease_token": lease.lease_id,
    });
    HttpRequest::post(path(call), body)
}

pub fn path(call: &str) -> String {
    format!("/internal/worker/{call}")
}
