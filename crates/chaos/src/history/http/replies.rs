//! Converts responses to replies of the coordinator. A refusal by the edge, or a response that the contract does not
//! know, gives none.

use std::sync::Arc;

use authority::command::{ConfigureAnswer, EndAnswer, Refusal, SubmitAnswer};
use authority::{
    CancelCause, CancelRequest, DeadReason, Lease, ListPage, Phase, Position, Task, TaskSettings, TaskView,
};
use coordinator::{Reply, Request, TaskDetail};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::names::{Names, task_id, text, time};
use super::super::refusals::unavailable;
use super::client_request::ClientRequest;

pub(super) fn reply(
    names: &Names,
    client_request: &ClientRequest,
    request: &Request,
    status: u16,
    body: &Value,
) -> Option<Reply> {
    if let Some(why) = unavailable(status, body["code"].as_str()) {
        return Some(Reply::Unavailable(why));
    }
    let answer = |answer: authority::Answer| Some(Reply::decided(answer));
    match client_request {
        ClientRequest::Submit(_) => answer(authority::Answer::Submitted(submitted(names, status, body)?)),
        ClientRequest::Batch(_) => {
            let batch: wire::SubmittedBatch = parse(body)?;
            let answers = batch.tasks.iter().map(|item| match item.task_id.as_deref().and_then(task_id) {
                Some(id) => authority::Answer::Submitted(SubmitAnswer::Created(id)),
                None => authority::Answer::Submitted(SubmitAnswer::Refused(Refusal::NoSpace)),
            });
            Some(Reply::Decided(answers.collect()))
        }
        ClientRequest::Cancel(..) if matches!(request, Request::Decide(_)) => match status {
            200 => answer(authority::Answer::Ended(EndAnswer::Accepted)),
            404 | 410 => answer(authority::Answer::Ended(EndAnswer::UnknownTask)),
            _ => None,
        },
        ClientRequest::Cancel(..) | ClientRequest::Read(_) => match status {
            200 => {
                let detail = TaskDetail { view: view(names, &parse(body)?)?, progress: None };
                Some(Reply::Task(Some(Box::new(detail))))
            }
            404 | 410 => Some(Reply::Task(None)),
            _ => None,
        },
        ClientRequest::List => {
            let list: wire::TaskList = parse(body).filter(|_| status == 200)?;
            let tasks = list.tasks.iter().map(|task| view(names, task)).collect::<Option<_>>()?;
            Some(Reply::List(ListPage { tasks, next: None }))
        }
        ClientRequest::Configure(..) => {
            answer(authority::Answer::Configured(ConfigureAnswer::Configured)).filter(|_| status == 200)
        }
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

/// Converts a task of the contract, which has no positions: these stay zero, which the auditor expects.
fn view(names: &Names, wire_task: &wire::Task) -> Option<TaskView> {
    let hidden = Position::ZERO;
    let at = wire_task.finished_at.map(time).unwrap_or_default();
    let phase = match wire_task.state {
        wire::TaskState::Waiting => {
            Phase::Waiting { since: hidden, not_before: wire_task.not_before.map(time), exhausted: false }
        }
        wire::TaskState::Leased => {
            let lease = wire_task.lease.as_ref()?;
            Phase::Leased(Box::new(Lease {
                fencing_token: hidden,
                worker: lease.worker_id.as_str().into(),
                session: None,
                request: None,
                granted_at: time(lease.granted_at),
                length_ms: 0,
                expires_at: time(lease.expires_at),
                extended_at: time(lease.granted_at),
                started_by: None,
                contract: None,
                since: None,
            }))
        }
        wire::TaskState::Completed => {
            let result = wire_task.result.as_ref().map_or("null", |result| result.as_text());
            Phase::Completed { at, ended: hidden, result: result.as_bytes().into() }
        }
        wire::TaskState::Failed => Phase::Failed { at, ended: hidden },
        wire::TaskState::Dead => {
            let reason =
                DeadReason::ALL.into_iter().find(|it| Some(it.name()) == wire_task.reason.as_deref())?;
            Phase::Dead { at, ended: hidden, reason, detail: text(&wire_task.reason_detail) }
        }
    };
    let cancel = wire_task.cancel_requested.as_ref().map(|cancel| {
        Box::new(CancelRequest {
            cause: CancelCause::User,
            reason: cancel.reason.as_str().into(),
            requested_at: time(cancel.at),
            grace_until: time(cancel.grace_until),
        })
    });
    let task = Task {
        id: task_id(&wire_task.task_id)?,
        payload: names.ledger.payload(wire_task.payload.as_text().as_bytes()),
        priority: wire_task.priority,
        attempt: wire_task.attempt,
        releases: 0,
        created_at: time(wire_task.created_at),
        created: hidden,
        last: hidden,
        phase,
        cancel,
        reports: Vec::new(),
        last_error: None,
        details: None,
        properties: Arc::default(),
        options: None,
        operations: Vec::new(),
    };
    let queue = names.queue(&wire_task.queue);
    let settings = TaskSettings { max_attempts: wire_task.max_attempts, ..TaskSettings::default() };
    Some(TaskView { queue, task, settings })
}

fn parse<T: DeserializeOwned>(body: &Value) -> Option<T> {
    serde_json::from_value(body.clone()).ok()
}
