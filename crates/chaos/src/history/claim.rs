//! Parses the calls of workers of the claim contract.

use authority::{Category, Position, TaskError};
use serde_json::Value;

use super::names::{named, task_id, text, time};
use super::native::parse;
use super::refusals::problem;
use super::spoken::{Asked, Became, Heard, Leased, Poll, Spoken};
use crate::api::{Answer, Call};
use crate::contract::Contract;

/// None when the call is of another contract, or cannot be read.
pub fn spoken(call: &Call) -> Option<Spoken> {
    let body = &call.body;
    let asked = match call.path.strip_prefix("/internal/worker/")? {
        "claim" => {
            let claim: wire::ClaimJob = parse(body)?;
            Asked::Poll(Poll {
                worker: claim.worker_id,
                session: None,
                queues: claim.streams,
                max_tasks: 1,
                request: claim.request_id,
            })
        }
        "heartbeat" => {
            let beat: wire::HeartbeatJob = parse(body)?;
            Asked::Heartbeat(named(&beat.lease_token, Some(&beat.worker_id), Some(&beat.job_id)))
        }
        "complete" => {
            let report: wire::CompleteJob = parse(body)?;
            let result = report.result.as_ref().map_or("null", |result| result.as_text());
            let lease = named(&report.lease_token, Some(&report.worker_id), Some(&report.job_id));
            Asked::Complete { lease, result: result.as_bytes().into() }
        }
        "fail" => {
            let report: wire::FailJob = parse(body)?;
            // The contract knows no categories.
            let error = TaskError {
                category: Category::UserCode,
                code: text(&report.error.code),
                message: report.error.message.as_str().into(),
            };
            let lease = named(&report.lease_token, Some(&report.worker_id), Some(&report.job_id));
            Asked::Fail { lease, error, retryable: report.error.retryable }
        }
        _ => return None,
    };
    let heard = match &call.answer {
        Answer::Lost => Heard::Lost,
        Answer::Told { status: 200, body } => told(&asked, body).unwrap_or(Heard::Nonsense),
        Answer::Told { status, body } => match (&asked, problem(*status, body)) {
            (Asked::Heartbeat(_), Heard::Cancelled) => Heard::Gone,
            (_, heard) => heard,
        },
    };
    let (sent_at, ended_at) = (call.sent_at, call.ended_at);
    Some(Spoken { contract: Contract::Claim, sent_at, ended_at, asked, heard })
}

fn told(asked: &Asked, body: &Value) -> Option<Heard> {
    Some(match asked {
        Asked::Poll(_) => {
            let told: wire::ClaimedJob = parse(body)?;
            Heard::Leased(if told.claimed { vec![leased(told)?] } else { Vec::new() })
        }
        Asked::Heartbeat(_) => {
            let told: wire::JobHeartbeat = parse(body)?;
            let cancel = text(&told.cancel_reason).filter(|_| told.should_cancel);
            Heard::Extended { expires_at: Some(time(told.lease_expires_at)), cancel }
        }
        Asked::Complete { .. } => {
            parse::<wire::JobCompleted>(body).filter(|told| told.ok && told.ack)?;
            Heard::Committed(Became::Completed)
        }
        _ => {
            let told: wire::JobFailed = parse(body)?;
            match (told.requeued, told.dlq) {
                (true, false) => Heard::Committed(Became::RetryAt(time(told.retry_at?))),
                (false, true) => Heard::Committed(Became::DeadLetter),
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
