//! Converts parsed calls of workers to exchanges with the coordinator.
//!
//! First all leases are learnt, then what reports were surely told, and only what is left over may belong to a report
//! whose answer was lost.

use std::sync::Arc;

use authority::command::{
    ExtendAnswer, ExtendLease, Grant, LeaseTasks, ReleaseAnswer, ReleaseLease, ReportCompletion,
    ReportFailure, RotateTokenKey, StartAnswer, StartAttempt, StartSession, Verdict,
};
use authority::event::ReleaseCause;
use authority::{Answer, Command, Digest, LeaseRef, Outcome, Position, Rejection, Time};
use coordinator::{Reply, Request};

use super::Exchange;
use super::learnt::Story;
use super::names::Names;
use super::spoken::{Asked, Became, Heard, Leased, Poll, Spoken};

pub fn exchanges(names: &mut Names, spoken: &[Spoken]) -> (Vec<Exchange>, Vec<String>) {
    let mut surprises = Vec::new();
    for spoken in spoken {
        if let (Asked::Poll(poll), Heard::Leased(told)) = (&spoken.asked, &spoken.heard) {
            let learnt = told.iter().map(|leased| names.learn_lease(spoken.contract, poll, leased));
            surprises.extend(learnt.filter_map(Result::err));
        }
    }
    for spoken in spoken {
        learn_outcome(names, spoken);
    }
    let mut exchanges = Vec::new();
    for spoken in spoken {
        let Spoken { contract, sent_at, ended_at, .. } = *spoken;
        let request = request(names, spoken);
        let reply = reply(names, spoken);
        if matches!(spoken.heard, Heard::Nonsense) || (reply.is_none() && claims_something(&spoken.heard)) {
            surprises.push(format!("{} was answered what it cannot be: {spoken:?}", contract.name()));
        }
        exchanges.push(Exchange { contract, sent_at, ended_at, request, reply });
    }
    (exchanges, surprises)
}

fn claims_something(heard: &Heard) -> bool {
    !matches!(heard, Heard::Lost | Heard::Nothing)
}

fn learn_outcome(names: &mut Names, spoken: &Spoken) {
    let (lease, story) = match &spoken.asked {
        Asked::Complete { lease, result } => (names.lease(lease), Story::Completed(result.clone())),
        Asked::Fail { lease, error, .. } => (names.lease(lease), Story::failed(error)),
        _ => return,
    };
    match spoken.heard {
        Heard::Cancelled => names.learnt.claim_discarded(lease.fencing_token, &story),
        Heard::Rejected(Rejection::ConflictingReport) => {
            names.contradicted.insert((lease.fencing_token, story));
        }
        _ => {}
    }
}

fn request(names: &mut Names, spoken: &Spoken) -> Request {
    let command = match &spoken.asked {
        Asked::Poll(poll) => {
            return Request::Poll { lease: lease_tasks(names, poll), until: Time::ZERO };
        }
        Asked::Heartbeat(lease) => {
            let extend = ExtendLease { lease: names.lease(lease) };
            return Request::heartbeat(extend, None);
        }
        Asked::Start { lease, by } => {
            Command::StartAttempt(StartAttempt { lease: names.lease(lease), started_by: by.as_str().into() })
        }
        Asked::Complete { lease, result } => {
            let (lease, result) = (names.lease(lease), result.clone());
            let digest = digest(names, &lease, Story::Completed(result.clone()), &spoken.heard);
            Command::ReportCompletion(ReportCompletion { lease, digest, result })
        }
        Asked::Fail { lease, error, retryable } => {
            let (lease, error, retryable) = (names.lease(lease), error.clone(), *retryable);
            let digest = digest(names, &lease, Story::failed(&error), &spoken.heard);
            Command::ReportFailure(ReportFailure { lease, digest, error, retryable, draw: 0 })
        }
        Asked::Session { worker, session } => Command::StartSession(StartSession {
            tenant: names.scope.tenant.clone(),
            worker: worker.as_str().into(),
            session: session.as_str().into(),
        }),
        Asked::RotateKey(key_id) => Command::RotateTokenKey(RotateTokenKey { key_id: key_id.clone() }),
        Asked::Release(lease) => {
            Command::ReleaseLease(ReleaseLease { lease: names.lease(lease), cause: ReleaseCause::Worker })
        }
    };
    Request::decide(command)
}

/// The digest by which the coordinator knows a report. One that nobody was told of may be the one that was discarded.
fn digest(names: &mut Names, lease: &LeaseRef, story: Story, heard: &Heard) -> Digest {
    if heard.is_undecided() && !names.contradicted.contains(&(lease.fencing_token, story.clone())) {
        names.learnt.claim_discarded(lease.fencing_token, &story);
    }
    names.learnt.story(lease.fencing_token, story)
}

fn lease_tasks(names: &mut Names, poll: &Poll) -> LeaseTasks {
    LeaseTasks {
        scope: names.scope.clone(),
        worker: poll.worker.as_str().into(),
        session: poll.session.as_deref().map(Into::into),
        queues: poll.queues.iter().map(|queue| queue.as_str().into()).collect(),
        properties: Arc::default(),
        max_tasks: poll.max_tasks,
        request: names.request(poll),
    }
}

/// None where nothing came back, nothing is claimed, or the answer does not belong to the request.
fn reply(names: &Names, spoken: &Spoken) -> Option<Reply> {
    let answer = match (&spoken.asked, &spoken.heard) {
        (_, Heard::Unavailable(why)) => return Some(Reply::Unavailable(*why)),
        (Asked::Poll(poll), Heard::Leased(told)) => {
            let worker: Arc<str> = Arc::from(poll.worker.as_str());
            return Some(Reply::Leased(told.iter().map(|leased| grant(names, &worker, leased)).collect()));
        }
        (Asked::Heartbeat(lease), heard) => Answer::Extended(match heard {
            Heard::Extended { expires_at, cancel } => {
                // Where the contract does not say until when, the lease still was there.
                let known =
                    || names.learnt.granted(names.lease(lease).fencing_token).map(|(_, expiry)| expiry);
                let expires_at = expires_at.or_else(known).unwrap_or_default();
                ExtendAnswer::Extended { expires_at, cancel: cancel.clone() }
            }
            Heard::Gone => ExtendAnswer::Lost,
            Heard::Rejected(why) => ExtendAnswer::Rejected(*why),
            _ => return None,
        }),
        (Asked::Start { .. }, heard) => Answer::Started(match heard {
            Heard::Started => StartAnswer::Started,
            Heard::Gone => StartAnswer::Lost,
            Heard::Rejected(why) => StartAnswer::Rejected(*why),
            _ => return None,
        }),
        (Asked::Complete { lease, .. } | Asked::Fail { lease, .. }, heard) => Answer::Reported(match heard {
            Heard::Committed(became) => {
                Verdict::Committed(outcome(names, names.lease(lease).fencing_token, *became))
            }
            Heard::Cancelled => Verdict::Cancelled,
            Heard::Rejected(why) => Verdict::Rejected(*why),
            _ => return None,
        }),
        (Asked::Release(_), heard) => Answer::Released(match heard {
            Heard::Released(state) => ReleaseAnswer::Over(*state),
            Heard::Rejected(why) => ReleaseAnswer::Rejected(*why),
            _ => return None,
        }),
        (Asked::Session { .. } | Asked::RotateKey(_), Heard::Done) => Answer::Done(false),
        _ => return None,
    };
    Some(Reply::decided(answer))
}

fn outcome(names: &Names, lease: Position, became: Became) -> Outcome {
    match became {
        Became::Completed => Outcome::Completed,
        Became::RetryAt(at) => Outcome::RetryAt(at),
        Became::Failed => Outcome::Failed,
        Became::Dead => names.learnt.death(lease),
        Became::DeadLetter if names.learnt.is_dead(lease) => names.learnt.death(lease),
        Became::DeadLetter => Outcome::Failed,
    }
}

/// A lease as it was told; what the contract does not tell is learnt or left blank.
fn grant(names: &Names, worker: &Arc<str>, leased: &Leased) -> Grant {
    let known = names.learnt.granted(leased.lease);
    Grant {
        fencing_token: leased.lease,
        worker: worker.clone(),
        task: leased.task,
        attempt: leased.attempt,
        queue: names.queue(&leased.queue),
        payload: names.learnt.payload(&leased.payload),
        created_at: Time::ZERO,
        since: None,
        granted_at: leased.granted_at.or(known.map(|(at, _)| at)).unwrap_or_default(),
        length_ms: 0,
        expires_at: leased.expires_at.or(known.map(|(_, expiry)| expiry)).unwrap_or_default(),
        heartbeat_interval_ms: leased.heartbeat_interval_ms,
        cancel_grace_ms: 0,
        options: None,
    }
}
