//! Converts parsed calls of workers to exchanges with the coordinator.
//!
//! All leases are recorded first, then the answered reports. Only the remaining records may belong to a report whose
//! answer was lost.

use std::sync::Arc;

use authority::command::{
    ExtendAnswer, ExtendLease, Grant, LeaseTasks, ReleaseAnswer, ReleaseLease, ReportCompletion,
    ReportFailure, RotateTokenKey, StartAnswer, StartAttempt, StartSession, Verdict,
};
use authority::event::ReleaseCause;
use authority::{Answer, Command, Digest, LeaseRef, Outcome, Position, Rejection, Time};
use coordinator::{Reply, Request};

use super::Exchange;
use super::ledger_index::ReportContent;
use super::names::Names;
use super::worker_call::{Leased, Poll, ReportOutcome, WorkerCall, WorkerRequest, WorkerResponse};
use crate::contract::Contract;

pub(super) fn exchanges(names: &mut Names, calls: &[WorkerCall]) -> (Vec<Exchange>, Vec<String>) {
    let mut unexpected_answers = Vec::new();
    for call in calls {
        if let (WorkerRequest::Poll(poll), WorkerResponse::Leased(leases)) = (&call.request, &call.response) {
            let results = leases.iter().map(|leased| names.record_lease(call.contract, poll, leased));
            unexpected_answers.extend(results.filter_map(Result::err));
        }
    }
    for call in calls {
        record_outcome(names, call);
    }
    let mut exchanges = Vec::new();
    for call in calls {
        let WorkerCall { contract, sent_at, ended_at, .. } = *call;
        let request = request(names, call);
        let reply = reply(names, call);
        if matches!(call.response, WorkerResponse::Invalid)
            || (reply.is_none() && claims_something(&call.response))
        {
            unexpected_answers.push(format!("{} was answered what it cannot be: {call:?}", contract.name()));
        }
        exchanges.push(Exchange { contract, sent_at, ended_at, request, reply });
    }
    (exchanges, unexpected_answers)
}

fn claims_something(response: &WorkerResponse) -> bool {
    !matches!(response, WorkerResponse::Lost | WorkerResponse::Nothing)
}

fn record_outcome(names: &mut Names, call: &WorkerCall) {
    let (lease, content) = match &call.request {
        WorkerRequest::Complete { lease, result } => {
            (names.lease(lease), ReportContent::Completed(result.clone()))
        }
        WorkerRequest::Fail { lease, error, .. } => (names.lease(lease), ReportContent::failed(error)),
        _ => return,
    };
    match call.response {
        WorkerResponse::Cancelled => names.ledger.claim_discarded(lease.fencing_token, &content),
        WorkerResponse::Rejected(Rejection::ConflictingReport) => {
            names.contradicted.insert((lease.fencing_token, content));
        }
        _ => {}
    }
}

fn request(names: &mut Names, call: &WorkerCall) -> Request {
    let command = match &call.request {
        WorkerRequest::Poll(poll) => {
            return Request::Poll { lease: lease_tasks(names, call.contract, poll), until: Time::ZERO };
        }
        WorkerRequest::Heartbeat(lease) => {
            let extend = ExtendLease { lease: names.lease(lease) };
            return Request::heartbeat(extend, None);
        }
        WorkerRequest::Start { lease, by } => {
            Command::StartAttempt(StartAttempt { lease: names.lease(lease), started_by: by.as_str().into() })
        }
        WorkerRequest::Complete { lease, result } => {
            let (lease, result) = (names.lease(lease), result.clone());
            let digest = digest(names, &lease, ReportContent::Completed(result.clone()), &call.response);
            Command::ReportCompletion(ReportCompletion { lease, digest, result, details: None })
        }
        WorkerRequest::Fail { lease, error, retryable } => {
            let (lease, error, retryable) = (names.lease(lease), error.clone(), *retryable);
            let digest = digest(names, &lease, ReportContent::failed(&error), &call.response);
            Command::ReportFailure(ReportFailure { lease, digest, error, retryable, draw: 0, details: None })
        }
        WorkerRequest::Session { worker, session } => Command::StartSession(StartSession {
            tenant: names.scope.tenant.clone(),
            worker: worker.as_str().into(),
            session: session.as_str().into(),
        }),
        WorkerRequest::RotateKey(key_id) => {
            Command::RotateTokenKey(RotateTokenKey { key_id: key_id.clone(), by: None })
        }
        WorkerRequest::Release(lease) => {
            Command::ReleaseLease(ReleaseLease { lease: names.lease(lease), cause: ReleaseCause::Worker })
        }
    };
    Request::decide(command)
}

/// The digest by which the coordinator knows a report. An unanswered report may be the discarded one.
fn digest(names: &mut Names, lease: &LeaseRef, content: ReportContent, response: &WorkerResponse) -> Digest {
    if response.is_undecided() && !names.contradicted.contains(&(lease.fencing_token, content.clone())) {
        names.ledger.claim_discarded(lease.fencing_token, &content);
    }
    names.ledger.report_digest(lease.fencing_token, content)
}

fn lease_tasks(names: &mut Names, contract: Contract, poll: &Poll) -> LeaseTasks {
    LeaseTasks {
        scope: names.scope.clone(),
        worker: poll.worker.as_str().into(),
        session: poll.session.as_deref().map(Into::into),
        queues: poll.queues.iter().map(|queue| queue.as_str().into()).collect(),
        properties: Arc::default(),
        max_tasks: poll.max_tasks,
        request: names.request(poll),
        contract: contract.recorded(),
    }
}

/// None where nothing came back, nothing is claimed, or the answer does not belong to the request.
fn reply(names: &Names, call: &WorkerCall) -> Option<Reply> {
    let answer = match (&call.request, &call.response) {
        (_, WorkerResponse::Unavailable(why)) => return Some(Reply::Unavailable(*why)),
        (WorkerRequest::Poll(poll), WorkerResponse::Leased(leases)) => {
            let worker: Arc<str> = Arc::from(poll.worker.as_str());
            return Some(Reply::Leased(leases.iter().map(|leased| grant(names, &worker, leased)).collect()));
        }
        (WorkerRequest::Heartbeat(lease), response) => Answer::Extended(match response {
            WorkerResponse::Extended { expires_at, cancel } => {
                // Where the contract does not say until when, the lease still was there.
                let known =
                    || names.ledger.granted(names.lease(lease).fencing_token).map(|(_, expiry)| expiry);
                let expires_at = expires_at.or_else(known).unwrap_or_default();
                ExtendAnswer::Extended { expires_at, cancel: cancel.clone() }
            }
            WorkerResponse::Gone => ExtendAnswer::Lost,
            WorkerResponse::Rejected(why) => ExtendAnswer::Rejected(*why),
            _ => return None,
        }),
        (WorkerRequest::Start { .. }, response) => Answer::Started(match response {
            WorkerResponse::Started => StartAnswer::Started,
            WorkerResponse::Gone => StartAnswer::Lost,
            WorkerResponse::Rejected(why) => StartAnswer::Rejected(*why),
            _ => return None,
        }),
        (WorkerRequest::Complete { lease, .. } | WorkerRequest::Fail { lease, .. }, response) => {
            Answer::Reported(match response {
                WorkerResponse::Committed(reported) => {
                    Verdict::Committed(outcome(names, names.lease(lease).fencing_token, *reported))
                }
                WorkerResponse::Cancelled => Verdict::Cancelled,
                WorkerResponse::Rejected(why) => Verdict::Rejected(*why),
                _ => return None,
            })
        }
        (WorkerRequest::Release(_), response) => Answer::Released(match response {
            WorkerResponse::Released(state) => ReleaseAnswer::Over(*state),
            WorkerResponse::Rejected(why) => ReleaseAnswer::Rejected(*why),
            _ => return None,
        }),
        (WorkerRequest::Session { .. } | WorkerRequest::RotateKey(_), WorkerResponse::Done) => {
            Answer::Done(false)
        }
        _ => return None,
    };
    Some(Reply::decided(answer))
}

fn outcome(names: &Names, lease: Position, reported: ReportOutcome) -> Outcome {
    match reported {
        ReportOutcome::Completed => Outcome::Completed,
        ReportOutcome::RetryAt(at) => Outcome::RetryAt(at),
        ReportOutcome::Failed => Outcome::Failed,
        ReportOutcome::Dead => names.ledger.death(lease),
        ReportOutcome::DeadLetter if names.ledger.is_dead(lease) => names.ledger.death(lease),
        ReportOutcome::DeadLetter => Outcome::Failed,
    }
}

/// Converts a lease. What the contract does not say comes from the ledger or stays blank.
fn grant(names: &Names, worker: &Arc<str>, leased: &Leased) -> Grant {
    let known = names.ledger.granted(leased.lease);
    Grant {
        fencing_token: leased.lease,
        worker: worker.clone(),
        task: leased.task,
        attempt: leased.attempt,
        queue: names.queue(&leased.queue),
        payload: names.ledger.payload(&leased.payload),
        created_at: Time::ZERO,
        since: None,
        granted_at: leased.granted_at.or(known.map(|(at, _)| at)).unwrap_or_default(),
        length_ms: 0,
        expires_at: leased.expires_at.or(known.map(|(_, expiry)| expiry)).unwrap_or_default(),
        heartbeat_interval_ms: leased.heartbeat_interval_ms,
        cancel_grace_ms: 0,
        options: None,
        partial_progress: None,
    }
}
