//! Parses the messages of workers of the gRPC service, by call or by stream.

use std::sync::Arc;

use authority::{Category, Position, Rejection, TaskError, TaskState, Time};
use coordinator::Unavailable;
use tonic::Code;
use wire::grpc::{self, LeasedTask, TaskStatus, UpdateTaskStatusRequest, UpdateTaskStatusResponse};

use super::names::{lease_name, task_id};
use super::worker_call::{LeaseName, Leased, Poll, ReportOutcome, WorkerCall, WorkerRequest, WorkerResponse};
use crate::rpc::{Answer, Rpc, RpcRequest};

/// None when it is nonsense.
pub(super) fn parse_rpc(rpc: &Rpc) -> Option<WorkerCall> {
    let request = match &rpc.request {
        RpcRequest::Register(registration) => WorkerRequest::Session {
            worker: registration.worker_id.clone(),
            session: given(&registration.session_id)?.to_owned(),
        },
        RpcRequest::Lease(ask) => WorkerRequest::Poll(Poll {
            worker: ask.worker_id.clone(),
            session: given(&ask.session_id).map(str::to_owned),
            queues: ask.queues.clone(),
            max_tasks: usize::try_from(ask.max_tasks).unwrap_or_default(),
            request: given(&ask.request_id).map(str::to_owned),
        }),
        RpcRequest::Report(report) => reported(report)?,
        RpcRequest::Heartbeat { worker_id, beat } => {
            WorkerRequest::Heartbeat(lease_name(&beat.lease_id, Some(worker_id), None))
        }
    };
    let response = match (&request, &rpc.answer) {
        (_, Answer::Lost) => WorkerResponse::Lost,
        (_, Answer::Refused { status, reason }) => refused(*status, reason),
        (WorkerRequest::Session { .. }, Answer::Registered) => WorkerResponse::Done,
        (WorkerRequest::Poll(_), Answer::Leased(tasks)) => {
            let leased: Option<Vec<Leased>> = tasks.iter().map(leased).collect();
            leased.map_or(WorkerResponse::Invalid, WorkerResponse::Leased)
        }
        (WorkerRequest::Heartbeat(_), Answer::Beaten(status)) if status.lost => WorkerResponse::Gone,
        (WorkerRequest::Heartbeat(_), Answer::Beaten(status)) => match status.expires_at {
            Some(expires_at) => {
                let cancel = Some(status.cancel_reason.as_str().into()).filter(|_| status.should_cancel);
                WorkerResponse::Extended { expires_at: Some(time(expires_at)), cancel }
            }
            None => WorkerResponse::Invalid,
        },
        (_, Answer::Reported(answer)) => parse_response(&request, answer).unwrap_or(WorkerResponse::Invalid),
        _ => WorkerResponse::Invalid,
    };
    let Rpc { contract, sent_at, ended_at, .. } = *rpc;
    Some(WorkerCall { contract, sent_at, ended_at, request, response })
}

fn reported(report: &UpdateTaskStatusRequest) -> Option<WorkerRequest> {
    let lease: LeaseName = lease_name(&report.lease_id, Some(&report.worker_id), given(&report.task_id));
    Some(match report.status() {
        TaskStatus::Unknown if report.release => WorkerRequest::Release(lease),
        TaskStatus::Completed => {
            let result: &[u8] = if report.result_json.is_empty() { b"null" } else { &report.result_json };
            WorkerRequest::Complete { lease, result: result.into() }
        }
        TaskStatus::Failed => {
            let error = TaskError {
                category: category(report.error_category()),
                code: given(&report.error_code).map(Arc::from),
                message: report.error_message.as_str().into(),
            };
            WorkerRequest::Fail { lease, error, retryable: report.retryable }
        }
        _ => return None,
    })
}

fn parse_response(request: &WorkerRequest, answer: &UpdateTaskStatusResponse) -> Option<WorkerResponse> {
    let state = answer.task_state();
    if let WorkerRequest::Release(_) = request {
        return Some(WorkerResponse::Released(task_state(state)?));
    }
    match answer.verdict() {
        grpc::Verdict::Committed => Some(WorkerResponse::Committed(match task_state(state)? {
            TaskState::Completed => ReportOutcome::Completed,
            TaskState::Failed => ReportOutcome::Failed,
            TaskState::Dead => ReportOutcome::Dead,
            TaskState::Waiting | TaskState::Leased => {
                ReportOutcome::RetryAt(answer.retry_at.map(time).unwrap_or_default())
            }
        })),
        grpc::Verdict::Cancelled => Some(WorkerResponse::Cancelled),
        grpc::Verdict::Rejected | grpc::Verdict::Unspecified => None,
    }
}

fn refused(status: u16, reason: &str) -> WorkerResponse {
    match (Code::from_i32(status.into()), reason) {
        (Code::ResourceExhausted, _) => WorkerResponse::Unavailable(Unavailable::Overloaded),
        (Code::Unavailable, "no_space") => WorkerResponse::Unavailable(Unavailable::NoSpace),
        (Code::Unavailable, "outcome_unknown") => WorkerResponse::Unavailable(Unavailable::OutcomeUnknown),
        (Code::Unavailable, _) => WorkerResponse::Unavailable(Unavailable::Stopped),
        (Code::FailedPrecondition, "conflicting_report") => {
            WorkerResponse::Rejected(Rejection::ConflictingReport)
        }
        (Code::PermissionDenied, _) => WorkerResponse::Rejected(Rejection::NeverGranted),
        (Code::NotFound, _) => WorkerResponse::Rejected(Rejection::UnknownTask),
        _ => WorkerResponse::Nothing,
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
