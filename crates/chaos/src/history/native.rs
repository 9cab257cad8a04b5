//! Parses the calls of workers of the native contract.

use authority::{Category, Position, TaskError, TaskId, TaskState};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::names::{category, lease_name, task_id, text, time};
use super::refusals::problem;
use super::worker_call::{Leased, Poll, ReportOutcome, WorkerCall, WorkerRequest, WorkerResponse};
use crate::api::{Answer, Call};
use crate::contract::Contract;

/// None when the call is no worker's, or cannot be read.
pub(super) fn parse_call(call: &Call) -> Option<WorkerCall> {
    let parts: Vec<&str> = call.path.strip_prefix("/v1/leases")?.split('/').skip(1).collect();
    let body = &call.body;
    let request = match parts.as_slice() {
        [] => {
            let poll: wire::LeaseTasks = parse(body)?;
            WorkerRequest::Poll(Poll {
                worker: poll.worker_id,
                session: None,
                queues: poll.queues,
                max_tasks: poll.max_tasks.unwrap_or(1) as usize,
                request: poll.request_id,
            })
        }
        [id, "heartbeat"] => {
            let beat: wire::Heartbeat = parse(body)?;
            WorkerRequest::Heartbeat(lease_name(id, Some(&beat.worker_id), beat.task_id.as_deref()))
        }
        [id, "complete"] => {
            let report: wire::ReportCompletion = parse(body)?;
            let result = report.result.as_ref().map_or("null", |result| result.as_text());
            let lease = lease_name(id, Some(&report.worker_id), report.task_id.as_deref());
            WorkerRequest::Complete { lease, result: result.as_bytes().into() }
        }
        [id, "fail"] => {
            let report: wire::ReportFailure = parse(body)?;
            let error = TaskError {
                category: report.category.map_or(Category::UserCode, category),
                code: text(&report.code),
                message: report.reason?.as_str().into(),
            };
            let lease = lease_name(id, Some(&report.worker_id), report.task_id.as_deref());
            WorkerRequest::Fail { lease, error, retryable: report.retryable }
        }
        [id, "release"] => {
            let release: wire::ReleaseLease = parse(body)?;
            WorkerRequest::Release(lease_name(id, Some(&release.worker_id), release.task_id.as_deref()))
        }
        _ => return None,
    };
    let response = match &call.answer {
        Answer::Lost => WorkerResponse::Lost,
        Answer::Response { status: 200, body } => {
            parse_response(&request, body).unwrap_or(WorkerResponse::Invalid)
        }
        Answer::Response { status: 410, .. } => WorkerResponse::Gone,
        Answer::Response { status, body } => problem(*status, body),
    };
    let (sent_at, ended_at) = (call.sent_at, call.ended_at);
    Some(WorkerCall { contract: Contract::Native, sent_at, ended_at, request, response })
}

fn parse_response(request: &WorkerRequest, body: &Value) -> Option<WorkerResponse> {
    Some(match request {
        WorkerRequest::Poll(_) => {
            let answer: wire::Leases = parse(body)?;
            WorkerResponse::Leased(answer.leases.into_iter().map(leased).collect())
        }
        WorkerRequest::Heartbeat(_) => {
            let answer: wire::HeartbeatAnswer = parse(body)?;
            let cancel = text(&answer.cancel_reason).filter(|_| answer.should_cancel);
            WorkerResponse::Extended { expires_at: Some(time(answer.expires_at)), cancel }
        }
        WorkerRequest::Release(_) => WorkerResponse::Released(state(parse::<wire::Released>(body)?.state)),
        _ => {
            let answer: wire::ReportAnswer = parse(body)?;
            match answer.verdict {
                wire::Verdict::Committed => WorkerResponse::Committed(match answer.state {
                    wire::TaskState::Completed => ReportOutcome::Completed,
                    wire::TaskState::Failed => ReportOutcome::Failed,
                    wire::TaskState::Dead => ReportOutcome::Dead,
                    wire::TaskState::Waiting | wire::TaskState::Leased => {
                        ReportOutcome::RetryAt(answer.retry_at.map(time).unwrap_or_default())
                    }
                }),
                wire::Verdict::Cancelled => WorkerResponse::Cancelled,
                wire::Verdict::Rejected => return None,
            }
        }
    })
}

fn leased(lease: wire::Lease) -> Leased {
    Leased {
        proof: lease.lease_id,
        task: task_id(&lease.task_id).unwrap_or(TaskId(0)),
        attempt: lease.attempt,
        lease: Position(lease.fencing_token),
        queue: lease.queue,
        payload: lease.payload.as_text().as_bytes().into(),
        granted_at: Some(time(lease.granted_at)),
        expires_at: Some(time(lease.expires_at)),
        heartbeat_interval_ms: lease.heartbeat_interval_ms,
    }
}

fn state(state: wire::TaskState) -> TaskState {
    match state {
        wire::TaskState::Waiting => TaskState::Waiting,
        wire::TaskState::Leased => TaskState::Leased,
        wire::TaskState::Completed => TaskState::Completed,
        wire::TaskState::Failed => TaskState::Failed,
        wire::TaskState::Dead => TaskState::Dead,
    }
}

pub(super) fn parse<T: DeserializeOwned>(body: &Value) -> Option<T> {
    serde_json::from_value(body.clone()).ok()
}
