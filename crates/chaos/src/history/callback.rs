//! Parses the callback calls of push workers, and derives the requests of the dispatcher that pushed their tasks.
//!
//! The dispatcher is part of the server, so nobody saw its requests: that it polled, and that it kept its leases alive
//! until their workers spoke, is taken as given. What it told the outside, a dispatch that was taken, is the answer to
//! its poll: from then on the lease must not be given back as undelivered.

use std::collections::HashSet;

use auditor::history::Recorded;
use authority::{Category, Event, LeaseRef, Position, Rejection, TaskError};
use axum::http::StatusCode;
use serde_json::Value;
use wire::{CallbackOutcome, CallbackState};

use super::names::{Names, category, named, task_id, text, time};
use super::native::parse;
use super::refusals::unavailable;
use super::spoken::{Asked, Became, Heard, Leased, Named, Poll, Spoken};
use crate::api::{Answer, Call};
use crate::contract::Contract;
use crate::facts::At;
use crate::target::Dispatch;

/// How the holder of a pushed task's lease is called, before the queue's name.
const HOLDER: &str = "push:";
/// What the server reports for a worker that it tells not to begin, because the task was cancelled.
const CANCELLED_MESSAGE: &str = "cancelled";

/// What one call says; nothing when it is of another contract, or cannot be read.
pub fn spoken(call: &Call) -> Vec<Spoken> {
    all(call).unwrap_or_default()
}

fn all(call: &Call) -> Option<Vec<Spoken>> {
    let (task, verb) = call.path.strip_prefix("/v1/tasks/")?.split_once('/')?;
    let lease = named(call.token.as_deref()?, None, Some(task));
    let asked = match verb {
        "started" => {
            let start: wire::TaskStarted = parse(&call.body)?;
            Asked::Start { lease: lease.clone(), by: start.worker_id }
        }
        "heartbeat" => Asked::Heartbeat(lease.clone()),
        "completed" => completed(lease.clone(), parse(&call.body)?)?,
        _ => return None,
    };
    let heard = match &call.answer {
        Answer::Lost => Heard::Lost,
        Answer::Told { status: 200, body } => told(&asked, body).unwrap_or(Heard::Nonsense),
        Answer::Told { status, body } => refused(&asked, *status, body),
    };
    let spoken = |asked: Asked, heard: Heard| {
        let (sent_at, ended_at) = (call.sent_at, call.ended_at);
        Spoken { contract: Contract::Callback, sent_at, ended_at, asked, heard }
    };
    let mut all = vec![spoken(asked, heard.clone())];
    if verb == "started" {
        // A start is a sign of life as well, and a start of a cancelled task is its end.
        all.push(spoken(Asked::Heartbeat(lease.clone()), Heard::Lost));
        if !matches!(heard, Heard::Started) {
            all.push(spoken(cancelled(lease, None), Heard::Lost));
        }
    }
    Some(all)
}

fn completed(lease: Named, report: wire::TaskCompleted) -> Option<Asked> {
    Some(match (report.outcome, report.error) {
        (CallbackOutcome::Succeeded, _) => {
            let result = report.output.as_ref().map_or("null", |output| output.as_text());
            Asked::Complete { lease, result: result.as_bytes().into() }
        }
        (CallbackOutcome::Failed, error) => {
            let error = error?;
            let told = TaskError {
                category: category(error.category),
                code: text(&error.code),
                message: error.message.as_str().into(),
            };
            Asked::Fail { lease, error: told, retryable: error.retryable }
        }
        (CallbackOutcome::Cancelled, error) => cancelled(lease, error.map(|error| error.message)),
    })
}

fn cancelled(lease: Named, message: Option<String>) -> Asked {
    let message = message.as_deref().unwrap_or(CANCELLED_MESSAGE).into();
    let error = TaskError { category: Category::Cancelled, code: None, message };
    Asked::Fail { lease, error, retryable: None }
}

fn told(asked: &Asked, body: &Value) -> Option<Heard> {
    Some(match asked {
        Asked::Start { .. } => {
            parse::<wire::StartAcknowledged>(body).filter(|told| told.acknowledged)?;
            Heard::Started
        }
        Asked::Heartbeat(_) => {
            let told: wire::HeartbeatAcknowledged = parse(body)?;
            let cancel = text(&told.cancel_reason).filter(|_| told.should_cancel);
            Heard::Extended { expires_at: None, cancel }
        }
        _ => {
            let told: wire::CompletionAcknowledged = parse(body)?;
            Heard::Committed(match told.final_state {
                CallbackState::Succeeded => Became::Completed,
                CallbackState::RetryWait => Became::RetryAt(time(told.retry_at?)),
                CallbackState::Failed => Became::DeadLetter,
                CallbackState::Cancelled => Became::Dead,
            })
        }
    })
}

fn refused(asked: &Asked, status: u16, body: &Value) -> Heard {
    let error = body["error"].as_str();
    if let Some(why) = unavailable(status, error) {
        return Heard::Unavailable(why);
    }
    match (status, error) {
        (409, Some("attempt_mismatch" | "task_already_terminal")) | (410, _) => match asked {
            Asked::Complete { .. } | Asked::Fail { .. } => Heard::Cancelled,
            _ => Heard::Gone,
        },
        (409, Some("attempt_already_completed")) => Heard::Rejected(Rejection::ConflictingReport),
        (401, _) => Heard::Rejected(Rejection::NeverGranted),
        (404, _) => Heard::Rejected(Rejection::UnknownTask),
        _ => Heard::Nothing,
    }
}

/// Learns whose lease the token of a dispatch proves. What is sent again has another token.
pub fn learn(names: &mut Names, dispatch: &Dispatch) -> Result<(), String> {
    let leased = leased(dispatch).ok_or_else(|| format!("a dispatch makes no sense: {dispatch:?}"))?;
    names.learn_lease(Contract::Callback, &poll(&dispatch.queue), &leased)
}

/// What the dispatcher must have asked, and what the target was told by it.
pub fn dispatched(
    names: &Names,
    calls: &[&Call],
    dispatches: &[Dispatch],
    records: &[Recorded],
) -> Vec<Spoken> {
    // It may push from the moment on that a queue has a target.
    let since = calls.iter().filter(|call| call.body["push"].is_object()).map(|call| call.sent_at).min();
    let Some(since) = since else { return Vec::new() };
    let spoken = |ended_at: At, asked: Asked, heard: Heard| {
        let (contract, sent_at) = (Contract::Callback, since);
        Spoken { contract, sent_at, ended_at, asked, heard }
    };
    let mut all = Vec::new();
    let mut told = HashSet::new();
    for dispatch in dispatches {
        let Some(leased) = leased(dispatch) else { continue };
        match dispatch.answer {
            // A lease is told once; the target has to expect that its dispatch is sent again.
            StatusCode::ACCEPTED if told.insert(leased.lease) => {
                let asked = Asked::Poll(poll(&dispatch.queue));
                all.push(spoken(dispatch.arrived_at, asked, Heard::Leased(vec![leased])));
            }
            StatusCode::UNPROCESSABLE_ENTITY => {
                let asked = unacceptable(named(&leased.proof, None, None), dispatch.answer);
                all.push(Spoken { sent_at: dispatch.arrived_at, ..spoken(since, asked, Heard::Lost) });
            }
            _ => {}
        }
    }
    let mut polled = HashSet::new();
    for record in records {
        match &record.event {
            Event::LeaseGranted(granted) => {
                let Some(queue) = granted.worker.strip_prefix(HOLDER) else { continue };
                let lease = Named::Recorded(LeaseRef {
                    scope: names.scope.clone(),
                    worker: granted.worker.clone(),
                    task: granted.task,
                    attempt: granted.attempt,
                    fencing_token: record.position,
                });
                if polled.insert(queue) {
                    all.push(spoken(since, Asked::Poll(poll(queue)), Heard::Lost));
                }
                all.push(spoken(since, Asked::Heartbeat(lease), Heard::Lost));
            }
            Event::TokenKeyRotated(rotated) => {
                all.push(spoken(since, Asked::RotateKey(rotated.key_id.clone()), Heard::Lost));
            }
            _ => {}
        }
    }
    all
}

/// What the dispatcher reports of a task that its target does not take.
fn unacceptable(lease: Named, status: StatusCode) -> Asked {
    let error = TaskError {
        category: Category::Infrastructure,
        code: Some("push_unacceptable".into()),
        message: format!("the push target answered {status}").into(),
    };
    Asked::Fail { lease, error, retryable: Some(true) }
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
