//! Parses the messages of workers of the gRPC service, by call or by stream.

use std::sync::Arc;

use authority::{Category, Position, Rejection, TaskError, TaskState, Time};
use coordinator::Unavailable;
use tonic::Code;
use wire::grpc::{self, LeasedTask, TaskStatus, UpdateTaskStatusRequest, UpdateTaskStatusResponse};

use super::names::{named, task_id};
use super::spoken::{Asked, Became, Heard, Leased, Named, Poll, Spoken};
use crate::rpc::{Answer, Rpc, Said};

/// None when it is nonsense.
pub fn spoken(rpc: &Rpc) -> Option<Spoken> {
    let asked = match &rpc.said {
        Said::Register(registration) => Asked::Session {
            worker: registration.worker_id.clone(),
            session: given(&registration.session_id)?.to_owned(),
        },
        Said::Lease(ask) => Asked::Poll(Poll {
            worker: ask.worker_id.clone(),
            session: given(&ask.session_id).map(str::to_owned),
            queues: ask.queues.clone(),
            max_tasks: usize::try_from(ask.max_tasks).unwrap_or_default(),
            request: given(&ask.request_id).map(str::to_owned),
        }),
        Said::Report(report) => reported(report)?,
        Said::Heartbeat { worker_id, beat } => Asked::Heartbeat(named(&beat.lease_id, Some(worker_id), None)),
    };
    let heard = match (&asked, &rpc.answer) {
        (_, Answer::Lost) => Heard::Lost,
        (_, Answer::Refused { status, reason }) => refused(*status, reason),
        (Asked::Session { .. }, Answer::Registered) => Heard::Done,
        (Asked::Poll(_), Answer::Leased(tasks)) => {
            let leased: Option<Vec<Leased>> = tasks.iter().map(leased).collect();
            leased.map_or(Heard::Nonsense, Heard::Leased)
        }
        (Asked::Heartbeat(_), Answer::Beaten(status)) if status.lost => Heard::Gone,
        (Asked::Heartbeat(_), Answer::Beaten(status)) => match status.expires_at {
            Some(expires_at) => {
                let cancel = Some(status.cancel_reason.as_str().into()).filter(|_| status.should_cancel);
                Heard::Extended { expires_at: Some(time(expires_at)), cancel }
            }
            None => Heard::Nonsense,
        },
        (_, Answer::Reported(answer)) => told(&asked, answer).unwrap_or(Heard::Nonsense),
        _ => Heard::Nonsense,
    };
    let Rpc { contract, sent_at, ended_at, .. } = *rpc;
    Some(Spoken { contract, sent_at, ended_at, asked, heard })
}

fn reported(report: &UpdateTaskStatusRequest) -> Option<Asked> {
    let lease: Named = named(&report.lease_id, Some(&report.worker_id), given(&report.task_id));
    Some(match report.status() {
        TaskStatus::Unknown if report.release => Asked::Release(lease),
        TaskStatus::Completed => {
            let result: &[u8] = if report.result_json.is_empty() { b"null" } else { &report.result_json };
            Asked::Complete { lease, result: result.into() }
        }
        TaskStatus::Failed => {
            let error = TaskError {
                category: category(report.error_category()),
                code: given(&report.error_code).map(Arc::from),
                message: report.error_message.as_str().into(),
            };
            Asked::Fail { lease, error, retryable: report.retryable }
        }
        _ => return None,
    })
}

fn told(asked: &Asked, answer: &UpdateTaskStatusResponse) -> Option<Heard> {
    let state = answer.task_state();
    if let Asked::Release(_) = asked {
        return Some(Heard::Released(task_state(state)?));
    }
    match answer.verdict() {
        grpc::Verdict::Committed => Some(Heard::Committed(match task_state(state)? {
            TaskState::Completed => Became::Completed,
            TaskState::Failed => Became::Failed,
            TaskState::Dead => Became::Dead,
            TaskState::Waiting | TaskState::Leased => {
                Became::RetryAt(answer.retry_at.map(time).unwrap_or_default())
            }
        })),
        grpc::Verdict::Cancelled => Some(Heard::Cancelled),
        grpc::Verdict::Rejected | grpc::Verdict::Unspecified => None,
    }
}

fn refused(status: u16, reason: &str) -> Heard {
    match (Code::from_i32(status.into()), reason) {
        (Code::ResourceExhausted, _) => Heard::Unavailable(Unavailable::Overloaded),
        (Code::Unavailable, "no_space") => Heard::Unavailable(Unavailable::NoSpace),
        (Code::Unavailable, "outcome_unknown") => Heard::Unavailable(Unavailable::OutcomeUnknown),
        (Code::Unavailable, _) => Heard::Unavailable(Unavailable::Stopped),
        (Code::FailedPrecondition, "conflicting_report") => Heard::Rejected(Rejection::ConflictingReport),
        (Code::PermissionDenied, _) => Heard::Rejected(Rejection::NeverGranted),
        (Code::NotFound, _) => Heard::Rejected(Rejection::UnknownTask),
        _ => Heard::Nothing,
    }
}

fn leased(task: &LeasedTask) -> Option<Leased> {
    let interval = task.heartbeat_interval?;
    Some(Leased {
        proof: task.lease_id.clone(),
        task: task_id(&task.task_id)?,
        attempt: task.attempt,
        lease: Position(task.fencing_token),
        queue: task.queue.clone(),
        payload: task.payload[..].into(),
        granted_at: Some(time(task.granted_at?)),
        expires_at: Some(time(task.lease_expires_at?)),
        heartbeat_interval_ms: interval.seconds as u64 * 1_000 + interval.nanos as u64 / 1_000_000,
    })
}

fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn time(at: prost_types::Timestamp) -> Time {
    Time(at.seconds as u64 * 1_000 + at.nanos as u64 / 1_000_000)
}

fn task_state(state: grpc::TaskState) -> Option<TaskState> {
    Some(match state {
        grpc::TaskState::Unspecified => return None,
        grpc::TaskState::Waiting => TaskState::Waiting,
        grpc::TaskState::Leased => TaskState::Leased,
        grpc::TaskState::Completed => TaskState::Completed,
        grpc::TaskState::Failed => TaskState::Failed,
        grpc::TaskState::Dead => TaskState::Dead,
    })
}

fn category(category: grpc::ErrorCategory) -> Category {
    match category {
        grpc::ErrorCategory::Unspecified | grpc::ErrorCategory::UserCode => Category::UserCode,
        grpc::ErrorCategory::DataQuality => Category::DataQuality,
        grpc::ErrorCategory::Infrastructure => Category::Infrastructure,
        grpc::ErrorCategory::Configuration => Category::Configuration,
        grpc::ErrorCategory::Timeout => Category::Timeout,
        grpc::ErrorCategory::Cancelled => Category::Cancelled,
    }
}
