//! Parses the calls of workers of the claim contract.

use authority::{Category, Position, TaskError};
use serde_json::Value;

use super::names::{lease_name, task_id, text, time};
use super::native::parse;
use super::refusals::problem;
use super::worker_call::{Leased, Poll, ReportOutcome, WorkerCall, WorkerRequest, WorkerResponse};
use crate::api::{Answer, Call};
use crate::contract::Contract;

/// None when the call is of another contract, or cannot be read.
pub(super) fn parse_call(call: &Call) -> Option<WorkerCall> {
    let body = &call.body;
    let request = match call.path.strip_prefix("/internal/worker/")? {
        "claim" => {
            let claim: wire::ClaimJob = parse(body)?;
            WorkerRequest::Poll(Poll {
                worker: claim.worker_id,
                session: None,
                queues: claim.streams,
                max_tasks: 1,
                request: claim.request_id,
            })
        }
        "heartbeat" => {
            let beat: wire::HeartbeatJob = parse(body)?;
            WorkerRequest::Heartbeat(lease_name(&beat.lease_token, Some(&beat.worker_id), Some(&beat.job_id)))
        }
        "complete" => {
            let report: wire::CompleteJob = parse(body)?;
            let result = report.result.as_ref().map_or("null", |result| result.as_text());
            let lease = lease_name(&report.lease_token, Some(&report.worker_id), Some(&report.job_id));
            WorkerRequest::Complete { lease, result: result.as_bytes().into() }
        }
        "fail" => {
            let report: wire::FailJob = parse(body)?;
            // The contract knows no categories.
            let error = TaskError {
                category: Category::UserCode,
                code: text(&report.error.code),
                message: report.error.message.as_str().into(),
            };
            let lease = lease_name(&report.lease_token, Some(&report.worker_id), Some(&report.job_id));
            WorkerRequest::Fail { lease, error, retryable: report.error.retryable }
        }
        _ => return None,
    };
    let response = match &call.answer {
        Answer::Lost => WorkerResponse::Lost,
        Answer::Response { status: 200, body } => {
            parse_response(&request, body).unwrap_or(WorkerResponse::Invalid)
        }
        Answer::Response { status, body } => match (&request, problem(*status, body)) {
            (WorkerRequest::Heartbeat(_), WorkerResponse::Cancelled) => WorkerResponse::Gone,
            (_, response) => response,
        },
    };
    let (sent_at, ended_at) = (call.sent_at, call.ended_at);
    Some(WorkerCall { contract: Contract::Claim, sent_at, ended_at, request, response })
}

fn parse_response(request: &WorkerRequest, body: &Value) -> Option<WorkerResponse> {
    Some(match request {
        WorkerRequest::Poll(_) => {
            let answer: wire::ClaimedJob = parse(body)?;
            WorkerResponse::Leased(if answer.claimed { vec![leased(answer)?] } else { Vec::new() })
        }
        WorkerRequest::Heartbeat(_) => {
            let answer: wire::JobHeartbeat = parse(body)?;
            let cancel = text(&answer.cancel_reason).filter(|_| answer.should_cancel);
            WorkerResponse::Extended { expires_at: Some(time(answer.lease_expires_at)), cancel }
        }
        WorkerRequest::Complete { .. } => {
            parse::<wire::JobCompleted>(body).filter(|answer| answer.ok && answer.ack)?;
            WorkerResponse::Committed(ReportOutcome::Completed)
        }
        _ => {
            let answer: wire::JobFailed = parse(body)?;
            match (answer.requeued, answer.dlq) {
                (true, false) => WorkerResponse::Committed(ReportOutcome::RetryAt(time(answer.retry_at?))),
                (false, true) => WorkerResponse::Committed(ReportOutcome::DeadLetter),
                _ => return None,
            }
        }
    })
}

fn leased(job: wire::ClaimedJob) -> Option<Leased> {
    let (task, attempt) = (job.job_id?, job.attempt?);
    // The name of the attempt is made of the two.
    let is_named_so = job.attempt_id? == format!("{task}:{attempt}");
    let payload = job.payload?;
    is_named_so.then_some(Leased {
        proof: job.lease_token?,
        task: task_id(&task)?,
        attempt,
        lease: Position(job.fencing_token?),
        queue: job.stream?,
        payload: payload.as_text().as_bytes().into(),
        granted_at: None,
        expires_at: Some(time(job.lease_expires_at?)),
        heartbeat_interval_ms: job.heartbeat_interval_seconds?.ms,
    })
}
