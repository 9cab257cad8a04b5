//! Parses the calls of workers of the native contract.

use authority::{Category, Position, TaskError, TaskId, TaskState};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::names::{category, named, task_id, text, time};
use super::refusals::problem;
use super::spoken::{Asked, Became, Heard, Leased, Poll, Spoken};
use crate::api::{Answer, Call};
use crate::contract::Contract;

/// None when the call is no worker's, or cannot be read.
pub fn spoken(call: &Call) -> Option<Spoken> {
    let parts: Vec<&str> = call.path.strip_prefix("/v1/leases")?.split('/').skip(1).collect();
    let body = &call.body;
    let asked = match parts.as_slice() {
        [] => {
            let poll: wire::LeaseTasks = parse(body)?;
            Asked::Poll(Poll {
                worker: poll.worker_id,
                session: None,
                queues: poll.queues,
                max_tasks: poll.max_tasks.unwrap_or(1) as usize,
                request: poll.request_id,
            })
        }
        [id, "heartbeat"] => {
            let beat: wire::Heartbeat = parse(body)?;
            Asked::Heartbeat(named(id, Some(&beat.worker_id), beat.task_id.as_deref()))
        }
        [id, "complete"] => {
            let report: wire::ReportCompletion = parse(body)?;
            let result = report.result.as_ref().map_or("null", |result| result.as_text());
            let lease = named(id, Some(&report.worker_id), report.task_id.as_deref());
            Asked::Complete { lease, result: result.as_bytes().into() }
        }
        [id, "fail"] => {
            let report: wire::ReportFailure = parse(body)?;
            let error = TaskError {
                category: report.category.map_or(Category::UserCode, category),
                code: text(&report.code),
                message: report.reason.as_str().into(),
            };
            let lease = named(id, Some(&report.worker_id), report.task_id.as_deref());
            Asked::Fail { lease, error, retryable: report.retryable }
        }
        [id, "release"] => {
            let release: wire::ReleaseLease = parse(body)?;
            Asked::Release(named(id, Some(&release.worker_id), release.task_id.as_deref()))
        }
        _ => return None,
    };
    let heard = match &call.answer {
        Answer::Lost => Heard::Lost,
        Answer::Told { status: 200, body } => told(&asked, body).unwrap_or(Heard::Nonsense),
        Answer::Told { status: 410, .. } => Heard::Gone,
        Answer::Told { status, body } => problem(*status, body),
    };
    let (sent_at, ended_at) = (call.sent_at, call.ended_at);
    Some(Spoken { contract: Contract::Native, sent_at, ended_at, asked, heard })
}

fn told(asked: &Asked, body: &Value) -> Option<Heard> {
    Some(match asked {
        Asked::Poll(_) => {
            let told: wire::Leases = parse(body)?;
            Heard::Leased(told.leases.into_iter().map(leased).collect())
        }
        Asked::Heartbeat(_) => {
            let told: wire::HeartbeatAnswer = parse(body)?;
            let cancel = text(&told.cancel_reason).filter(|_| told.should_cancel);
            Heard::Extended { expires_at: Some(time(told.expires_at)), cancel }
        }
        Asked::Release(_) => Heard::Released(state(parse::<wire::Released>(body)?.state)),
        _ => {
            let told: wire::ReportAnswer = parse(body)?;
            match told.verdict {
                wire::Verdict::Committed => Heard::Committed(match told.state {
                    wire::TaskState::Completed => Became::Completed,
                    wire::TaskState::Failed => Became::Failed,
                    wire::TaskState::Dead => Became::Dead,
                    wire::TaskState::Waiting | wire::TaskState::Leased => {
                        Became::RetryAt(told.retry_at.map(time).unwrap_or_default())
                    }
                }),
                wire::Verdict::Cancelled => Heard::Cancelled,
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

pub fn parse<T: DeserializeOwned>(body: &Value) -> Option<T> {
    serde_json::from_value(body.clone()).ok()
}
