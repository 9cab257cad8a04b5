//! Parses the callback calls of push workers, and derives the requests of the dispatcher that pushed their tasks.
//!
//! The dispatcher is part of the server, so its requests are not recorded: its polls, and the heartbeats
//! until a worker calls back, are assumed. A dispatch that the target took counts as the answer to the dispatcher's
//! poll: from then on the lease must not be given back as undelivered.

use std::collections::HashSet;

use auditor::history::Recorded;
use authority::{Category, Event, LeaseRef, Position, Rejection, TaskError};
use axum::http::StatusCode;
use serde_json::Value;
use wire::{CallbackOutcome, CallbackState};

use super::names::{Names, category, lease_name, task_id, text, time};
use super::native::parse;
use super::refusals::unavailable;
use super::worker_call::{LeaseName, Leased, Poll, ReportOutcome, WorkerCall, WorkerRequest, WorkerResponse};
use crate::api::{Answer, Call};
use crate::contract::Contract;
use crate::recorder::At;
use crate::target::Dispatch;

/// How the holder of a pushed task's lease is called, before the queue's name.
const HOLDER: &str = "push:";
/// What the server reports for a worker that must not begin, because the task was cancelled.
const CANCELLED_MESSAGE: &str = "cancelled";

/// The requests of one call; none when the call is of another contract or cannot be parsed.
pub(super) fn parse_calls(call: &Call) -> Vec<WorkerCall> {
    all(call).unwrap_or_default()
}

fn all(call: &Call) -> Option<Vec<WorkerCall>> {
    let (task, verb) = call.path.strip_prefix("/v1/tasks/")?.split_once('/')?;
    let lease = lease_name(call.token.as_deref()?, None, Some(task));
    let request = match verb {
        "started" => {
            let start: wire::TaskStarted = parse(&call.body)?;
            WorkerRequest::Start { lease: lease.clone(), by: start.worker_id }
        }
        "heartbeat" => WorkerRequest::Heartbeat(lease.clone()),
        "completed" => completed(lease.clone(), parse(&call.body)?)?,
        _ => return None,
    };
    let response = match &call.answer {
        Answer::Lost => WorkerResponse::Lost,
        Answer::Response { status: 200, body } => {
            parse_response(&request, body).unwrap_or(WorkerResponse::Invalid)
        }
        Answer::Response { status, body } => refused(&request, *status, body),
    };
    let worker_call = |request: WorkerRequest, response: WorkerResponse| {
        let (sent_at, ended_at) = (call.sent_at, call.ended_at);
        WorkerCall { contract: Contract::Callback, sent_at, ended_at, request, response }
    };
    let mut all = vec![worker_call(request, response.clone())];
    if verb == "started" {
        // A start is a sign of life as well, and a start of a cancelled task is its end.
        all.push(worker_call(WorkerRequest::Heartbeat(lease.clone()), WorkerResponse::Lost));
        if !matches!(response, WorkerResponse::Started) {
            all.push(worker_call(cancelled(lease, None), WorkerResponse::Lost));
        }
    }
    Some(all)
}

fn completed(lease: LeaseName, report: wire::TaskCompleted) -> Option<WorkerRequest> {
    Some(match (report.outcome, report.error) {
        (CallbackOutcome::Succeeded, _) => {
            let result = report.output.as_ref().map_or("null", |output| output.as_text());
            WorkerRequest::Complete { lease, result: result.as_bytes().into() }
        }
        (CallbackOutcome::Failed, error) => {
            let error = error?;
            let task_error = TaskError {
                category: category(error.category),
                code: text(&error.code),
                message: error.message.as_str().into(),
            };
            WorkerRequest::Fail { lease, error: task_error, retryable: error.retryable }
        }
        (CallbackOutcome::Cancelled, error) => cancelled(lease, error.map(|error| error.message)),
    })
}

fn cancelled(lease: LeaseName, message: Option<String>) -> WorkerRequest {
    let message = message.as_deref().unwrap_or(CANCELLED_MESSAGE).into();
    let error = TaskError { category: Category::Cancelled, code: None, message };
    WorkerRequest::Fail { lease, error, retryable: None }
}

fn parse_response(request: &WorkerRequest, body: &Value) -> Option<WorkerResponse> {
    Some(match request {
        WorkerRequest::Start { .. } => {
            parse::<wire::StartAcknowledged>(body).filter(|answer| answer.acknowledged)?;
            WorkerResponse::Started
        }
        WorkerRequest::Heartbeat(_) => {
            let answer: wire::HeartbeatAcknowledged = parse(body)?;
            let cancel = text(&answer.cancel_reason).filter(|_| answer.should_cancel);
            WorkerResponse::Extended { expires_at: None, cancel }
        }
        _ => {
            let answer: wire::CompletionAcknowledged = parse(body)?;
            WorkerResponse::Committed(match answer.final_state {
                CallbackState::Succeeded => ReportOutcome::Completed,
                CallbackState::RetryWait => ReportOutcome::RetryAt(time(answer.retry_at?)),
                CallbackState::Failed => ReportOutcome::DeadLetter,
                CallbackState::Cancelled => ReportOutcome::Dead,
            })
        }
    })
}

fn refused(request: &WorkerRequest, status: u16, body: &Value) -> WorkerResponse {
    let error = body["error"].as_str();
    if let Some(why) = unavailable(status, error) {
        return WorkerResponse::Unavailable(why);
    }
    match (status, error) {
        (409, Some("attempt_mismatch" | "task_already_terminal")) | (410, _) => match request {
            WorkerRequest::Complete { .. } | WorkerRequest::Fail { .. } => WorkerResponse::Cancelled,
            _ => WorkerResponse::Gone,
        },
        (409, Some("attempt_already_completed")) => WorkerResponse::Rejected(Rejection::ConflictingReport),
        (401, _) => WorkerResponse::Rejected(Rejection::NeverGranted),
        (404, _) => WorkerResponse::Rejected(Rejection::UnknownTask),
        _ => WorkerResponse::Nothing,
    }
}

/// Records the lease that the token of a dispatch proves. A dispatch that is sent again has another token.
pub(super) fn record_dispatch(names: &mut Names, dispatch: &Dispatch) -> Result<(), String> {
    let leased = leased(dispatch).ok_or_else(|| format!("a dispatch makes no sense: {dispatch:?}"))?;
    names.record_lease(Contract::Callback, &poll(&dispatch.queue), &leased)
}

/// The requests that the dispatcher must have made, and the dispatches that answer them.
pub(super) fn dispatched(
    names: &Names,
    calls: &[&Call],
    dispatches: &[Dispatch],
    records: &[Recorded],
) -> Vec<WorkerCall> {
    // It may push from the moment on that a queue has a target.
    let since = calls.iter().filter(|call| call.body["push"].is_object()).map(|call| call.sent_at).min();
    let Some(since) = since else { return Vec::new() };
    let worker_call = |ended_at: At, request: WorkerRequest, response: WorkerResponse| {
        let (contract, sent_at) = (Contract::Callback, since);
        WorkerCall { contract, sent_at, ended_at, request, response }
    };
    let mut all = Vec::new();
    let mut delivered = HashSet::new();
    for dispatch in dispatches {
        let Some(leased) = leased(dispatch) else { continue };
        match dispatch.answer {
            // A lease is delivered once; the target has to expect that its dispatch is sent again.
            StatusCode::ACCEPTED if delivered.insert(leased.lease) => {
                let request = WorkerRequest::Poll(poll(&dispatch.queue));
                all.push(worker_call(dispatch.arrived_at, request, WorkerResponse::Leased(vec![leased])));
            }
            StatusCode::UNPROCESSABLE_ENTITY => {
                let request = unacceptable(lease_name(&leased.proof, None, None), dispatch.answer);
                all.push(WorkerCall {
                    sent_at: dispatch.arrived_at,
                    ..worker_call(since, request, WorkerResponse::Lost)
                });
            }
            _ => {}
        }
    }
    let mut polled = HashSet::new();
    for record in records {
        match &record.event {
            Event::LeaseGranted(granted) => {
                let Some(queue) = granted.worker.strip_prefix(HOLDER) else { continue };
                let lease = LeaseName::Recorded(LeaseRef {
                    scope: names.scope.clone(),
                    worker: granted.worker.clone(),
                    task: granted.task,
                    attempt: granted.attempt,
                    fencing_token: record.position,
                });
                if polled.insert(queue) {
                    all.push(worker_call(since, WorkerRequest::Poll(poll(queue)), WorkerResponse::Lost));
                }
                all.push(worker_call(since, WorkerRequest::Heartbeat(lease), WorkerResponse::Lost));
            }
            Event::TokenKeyRotated(rotated) => {
                all.push(worker_call(
                    since,
                    WorkerRequest::RotateKey(rotated.key_id.clone()),
                    WorkerResponse::Lost,
                ));
            }
            _ => {}
        }
    }
    all
}

/// What the dispatcher reports of a task that its target does not take.
fn unacceptable(lease: LeaseName, status: StatusCode) -> WorkerRequest {
    let error = TaskError {
        category: Category::Infrastructure,
        code: Some("push_unacceptable".into()),
        message: format!("the push target answered {status}").into(),
    };
    WorkerRequest::Fail { lease, error, retryable: Some(true) }
}

fn poll(queue: &str) -> Poll {
    Poll { worker: format!("{HOLDER}{queue}"), queues: vec![queue.to_owned()], ..Poll::default() }
}

fn leased(dispatch: &Dispatch) -> Option<Leased> {
    let envelope = &dispatch.envelope;
    Some(Leased {
        proof: envelope.task_token.clone(),
        task: task_id(&envelope.task_id)?,
        attempt: envelope.attempt,
        lease: Position(envelope.fencing_token),
        queue: dispatch.queue.clone(),
        payload: envelope.payload.as_text().as_bytes().into(),
        granted_at: None,
        expires_at: None,
        heartbeat_interval_ms: envelope.heartbeat_interval_ms,
    })
}
