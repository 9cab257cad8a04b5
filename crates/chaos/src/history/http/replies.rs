//! What came back, as replies of the coordinator. A refusal by the edge, and what the contract does not know, gives
//! none.

use std::sync::Arc;

use authority::command::{
    ConfigureAnswer, EndAnswer, ExtendAnswer, Grant, Refusal, ReleaseAnswer, SubmitAnswer, Verdict,
};
use authority::{
    CancelCause, CancelRequest, DeadReason, Lease, ListPage, Outcome, Phase, Position, QueueKey, Rejection,
    Task, TaskState, TaskView, Time,
};
use coordinator::{Reply, Request, TaskDetail, Unavailable};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::said::Said;
use super::{Names, requests, task_id, text, time};
use crate::api::Answer;

pub fn reply(names: &Names, said: &Said, request: &Request, status: u16, body: &Value) -> Option<Reply> {
    if let Some(why) = unavailable(status, body) {
        return Some(Reply::Unavailable(why));
    }
    let answer = |answer: authority::Answer| Some(Reply::Answer(answer));
    match said {
        Said::Submit(_) => answer(authority::Answer::Submitted(submitted(names, status, body)?)),
        Said::Batch(_) => {
            let batch: wire::SubmittedBatch = parse(body)?;
            let answers = batch.tasks.iter().map(|item| match item.task_id.as_deref().and_then(task_id) {
                Some(id) => SubmitAnswer::Created(id),
                None => SubmitAnswer::Refused(Refusal::NoSpace),
            });
            Some(Reply::Batch(answers.collect()))
        }
        Said::Cancel(..) if matches!(request, Request::Decide(_)) => match status {
            200 => answer(authority::Answer::Ended(EndAnswer::Accepted)),
            404 => answer(authority::Answer::Ended(EndAnswer::UnknownTask)),
            _ => None,
        },
        Said::Cancel(..) | Said::Read(_) => match status {
            200 => {
                let detail = TaskDetail { view: view(names, &parse(body)?)?, progress: None };
                Some(Reply::Task(Some(Box::new(detail))))
            }
            404 => Some(Reply::Task(None)),
            _ => None,
        },
        Said::List => {
            let list: wire::TaskList = parse(body).filter(|_| status == 200)?;
            let tasks = list.tasks.iter().map(|task| view(names, task)).collect::<Option<_>>()?;
            Some(Reply::List(ListPage { tasks, next: None }))
        }
        Said::Configure(..) => {
            answer(authority::Answer::Configured(ConfigureAnswer::Configured)).filter(|_| status == 200)
        }
        Said::Poll(_) if status == 200 => {
            let grants = parse::<wire::Leases>(body)?.leases;
            let grants = grants.into_iter().map(|lease| grant(names, lease)).collect::<Option<_>>()?;
            answer(authority::Answer::Leased(grants))
        }
        Said::Poll(_) => None,
        Said::Heartbeat(..) => answer(authority::Answer::Extended(match status {
            200 => {
                let told: wire::HeartbeatAnswer = parse(body)?;
                ExtendAnswer::Extended {
                    expires_at: time(told.expires_at),
                    cancel: text(&told.cancel_reason).filter(|_| told.should_cancel),
                }
            }
            410 => ExtendAnswer::Lost,
            status => ExtendAnswer::Rejected(rejection(status, body)?),
        })),
        Said::Complete(..) | Said::Fail(..) => {
            answer(authority::Answer::Reported(verdict(names, said, status, body)?))
        }
        Said::Release(..) => answer(authority::Answer::Released(match status {
            200 => ReleaseAnswer::Over(state(parse::<wire::Released>(body)?.state)),
            status => ReleaseAnswer::Rejected(rejection(status, body)?),
        })),
    }
}

/// The leases that an answer tells of.
pub fn leases(answer: &Answer) -> Vec<wire::Lease> {
    let told = parse::<wire::Leases>(answer.body()).filter(|_| answer.status() == Some(200));
    told.map(|told| told.leases).unwrap_or_default()
}

fn unavailable(status: u16, body: &Value) -> Option<Unavailable> {
    match (status, body["code"].as_str()) {
        (429, _) => Some(Unavailable::Overloaded),
        (503, Some("no_space")) => Some(Unavailable::NoSpace),
        (503, Some("outcome_unknown")) => Some(Unavailable::OutcomeUnknown),
        (503, _) => Some(Unavailable::Stopped),
        _ => None,
    }
}

fn submitted(names: &Names, status: u16, body: &Value) -> Option<SubmitAnswer> {
    match status {
        201 => Some(SubmitAnswer::Created(task_id(&parse::<wire::Submitted>(body)?.task_id)?)),
        200 => Some(SubmitAnswer::Existing(Box::new(view(names, &parse(body)?)?))),
        409 => Some(SubmitAnswer::DedupConflict(task_id(body["taskId"].as_str()?)?)),
        _ => None,
    }
}

fn verdict(names: &Names, said: &Said, status: u16, body: &Value) -> Option<Verdict> {
    if status != 200 {
        return match body["verdict"].as_str()? {
            "CANCELLED" => Some(Verdict::Cancelled),
            _ => rejection(status, body).map(Verdict::Rejected),
        };
    }
    let told: wire::ReportAnswer = parse(body)?;
    let (lease, _) = requests::story(names, said)?;
    Some(match told.verdict {
        wire::Verdict::Committed => Verdict::Committed(match told.state {
            wire::TaskState::Completed => Outcome::Completed,
            wire::TaskState::Failed => Outcome::Failed,
            wire::TaskState::Dead => names.learnt.death(lease.lease),
            wire::TaskState::Waiting | wire::TaskState::Leased => {
                Outcome::RetryAt(told.retry_at.map(time).unwrap_or_default())
            }
        }),
        wire::Verdict::Cancelled => Verdict::Cancelled,
        wire::Verdict::Rejected => return None,
    })
}

fn rejection(status: u16, body: &Value) -> Option<Rejection> {
    match (status, body["code"].as_str()) {
        (409, Some("another_story")) => Some(Rejection::AnotherStory),
        // Whatever makes the edge refuse a lease id: to this worker, for this task, it was never granted.
        (403, _) => Some(Rejection::NeverGranted),
        (404, _) => Some(Rejection::UnknownTask),
        _ => None,
    }
}

/// A lease as it was told; what the contract does not tell is left blank.
fn grant(names: &Names, lease: wire::Lease) -> Option<Grant> {
    Some(Grant {
        lease: Position(lease.fencing_token),
        task: task_id(&lease.task_id)?,
        attempt: lease.attempt,
        queue: Arc::new(QueueKey { scope: names.scope.clone(), name: lease.queue.as_str().into() }),
        payload: names.learnt.payload(lease.payload.as_text().as_bytes()),
        created_at: Time::ZERO,
        since: None,
        granted_at: time(lease.granted_at),
        length_ms: 0,
        expires_at: time(lease.expires_at),
        heartbeat_interval_ms: lease.heartbeat_interval_ms,
        cancel_grace_ms: 0,
        extras: None,
    })
}

/// A task as it was shown. The contract does not tell positions; the auditor knows.
fn view(names: &Names, shown: &wire::Task) -> Option<TaskView> {
    let hidden = Position::ZERO;
    let at = shown.finished_at.map(time).unwrap_or_default();
    let phase = match shown.state {
        wire::TaskState::Waiting => {
            Phase::Waiting { since: hidden, not_before: shown.not_before.map(time), exhausted: false }
        }
        wire::TaskState::Leased => {
            let lease = shown.lease.as_ref()?;
            Phase::Leased(Box::new(Lease {
                number: hidden,
                worker: lease.worker_id.as_str().into(),
                session: None,
                request: None,
                granted_at: time(lease.granted_at),
                length_ms: 0,
                expires_at: time(lease.expires_at),
                extended_at: time(lease.granted_at),
                started_by: None,
            }))
        }
        wire::TaskState::Completed => {
            let result = shown.result.as_ref().map_or("null", |result| result.as_text());
            Phase::Completed { at, ended: hidden, result: result.as_bytes().into() }
        }
        wire::TaskState::Failed => Phase::Failed { at, ended: hidden },
        wire::TaskState::Dead => {
            let reason = DeadReason::ALL.into_iter().find(|it| Some(it.name()) == shown.reason.as_deref())?;
            Phase::Dead { at, ended: hidden, reason, detail: text(&shown.reason_detail) }
        }
    };
    let cancel = shown.cancel_requested.as_ref().map(|cancel| {
        Box::new(CancelRequest {
            cause: CancelCause::User,
            reason: cancel.reason.as_str().into(),
            requested_at: time(cancel.at),
            grace_until: time(cancel.grace_until),
        })
    });
    let task = Task {
        id: task_id(&shown.task_id)?,
        payload: names.learnt.payload(shown.payload.as_text().as_bytes()),
        priority: shown.priority,
        attempt: shown.attempt,
        releases: 0,
        created_at: time(shown.created_at),
        created: hidden,
        last: hidden,
        phase,
        cancel,
        reports: Vec::new(),
        last_error: None,
        properties: Arc::default(),
        extras: None,
        operations: Vec::new(),
    };
    let queue = Arc::new(QueueKey { scope: names.scope.clone(), name: shown.queue.as_str().into() });
    Some(TaskView { queue, task })
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

fn parse<T: DeserializeOwned>(body: &Value) -> Option<T> {
    serde_json::from_value(body.clone()).ok()
}
