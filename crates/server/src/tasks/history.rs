//! GET /v1/tasks/{taskId}/history: what the ledger says about a task.

use authority::event::{ExpiryCause, NextStep, ReleaseCause};
use authority::{CancelCause, Event};
use axum::extract::State;
use axum::http::StatusCode;
use coordinator::HistoryRecord;
use wire::{HistoryEvent, TaskHistory};

use crate::app::App;
use crate::convert::ids::parse_task_id;
use crate::convert::problem::Problem;
use crate::convert::scope::InScope;
use crate::convert::task_json;
use crate::convert::time::to_timestamp;
use crate::edge::json::{InPath, Out};

/// A task's history from the ledger, oldest first.
#[utoipa::path(
    get,
    path = "/v1/tasks/{taskId}/history",
    tag = "Tasks",
    params(("taskId" = String, Path)),
    responses(
        (status = 200, body = TaskHistory),
        (status = 404, body = wire::Problem),
        (status = 503, body = wire::Problem)
    )
)]
pub async fn history(
    State(app): State<App>,
    InScope(scope): InScope,
    InPath(task_id): InPath<String>,
) -> Result<Out<TaskHistory>, Problem> {
    let unknown = || Problem::unknown_task(&task_id);
    let task = parse_task_id(&task_id).ok_or_else(unknown)?;
    let history = app.handle().history(scope, task).await?.ok_or_else(unknown)?;
    let events = history.records.into_iter().map(event).collect();
    Ok(Out(StatusCode::OK, TaskHistory { events, truncated: history.truncated }))
}

fn event(record: HistoryRecord) -> HistoryEvent {
    let base = HistoryEvent {
        position: record.position.0,
        at: to_timestamp(record.at),
        kind: record.event.name().to_owned(),
        ..HistoryEvent::default()
    };
    match record.event {
        Event::TaskCreated(created) => HistoryEvent {
            queue: Some(created.queue.name.to_string()),
            priority: Some(created.priority),
            payload_bytes: Some(created.payload.len()),
            not_before: created.not_before.map(to_timestamp),
            redrive_of: created.options.and_then(|options| options.redrive_of).map(|task| task.to_string()),
            operation: created.operation.map(|operation| operation.to_string()),
            ..base
        },
        Event::LeaseGranted(granted) => HistoryEvent {
            attempt: Some(granted.attempt),
            fencing_token: Some(record.position.0),
            worker_id: Some(granted.worker.to_string()),
            lease_ms: Some(granted.length_ms),
            expires_at: Some(to_timestamp(granted.expires_at)),
            ..base
        },
        Event::LeaseExtended(extended) => HistoryEvent {
            fencing_token: Some(extended.fencing_token.0),
            expires_at: Some(to_timestamp(extended.expires_at)),
            ..base
        },
        Event::LeaseExpired(expired) => HistoryEvent {
            fencing_token: Some(expired.fencing_token.0),
            cause: Some(expiry_cause(expired.cause).to_owned()),
            exhausted: Some(expired.exhausted),
            ..base
        },
        Event::LeaseReleased(released) => HistoryEvent {
            fencing_token: Some(released.fencing_token.0),
            cause: Some(release_cause(released.cause).to_owned()),
            ..base
        },
        Event::AttemptStarted(started) => HistoryEvent {
            fencing_token: Some(started.fencing_token.0),
            worker_id: Some(started.worker.to_string()),
            ..base
        },
        Event::TaskCompleted(completed) => HistoryEvent {
            fencing_token: Some(completed.fencing_token.0),
            result_bytes: Some(completed.result.len()),
            ..base
        },
        Event::TaskFailed(failed) => HistoryEvent {
            fencing_token: Some(failed.fencing_token.0),
            error: Some(task_json::error_to_wire(&failed.error)),
            retry_at: match failed.next {
                NextStep::RetryAt(at) => Some(to_timestamp(at)),
                NextStep::Final => None,
            },
            ..base
        },
        Event::TaskDead(dead) => HistoryEvent {
            reason: Some(dead.reason.name().to_owned()),
            reason_detail: dead.detail.map(|detail| detail.to_string()),
            fencing_token: dead.report.as_ref().map(|report| report.fencing_token.0),
            error: dead.report.as_ref().map(|report| task_json::error_to_wire(&report.error)),
            ..base
        },
        Event::TaskCancelled(cancelled) => HistoryEvent {
            attempt: Some(cancelled.attempt),
            fencing_token: Some(cancelled.fencing_token.0),
            ..base
        },
        Event::CancelRequested(requested) => HistoryEvent {
            cause: Some(cancel_cause(requested.cause).to_owned()),
            reason: Some(requested.reason.to_string()),
            grace_until: Some(to_timestamp(requested.grace_until)),
            ..base
        },
        Event::OperationAttached(attached) => {
            HistoryEvent { operation: Some(attached.operation.to_string()), ..base }
        }
        Event::OperationDetached(detached) => {
            HistoryEvent { operation: Some(detached.operation.to_string()), ..base }
        }
        Event::QueueConfigured(_)
        | Event::TasksPurged(_)
        | Event::TokenKeyRotated(_)
        | Event::OwnerTookOver(_) => base,
    }
}

fn expiry_cause(cause: ExpiryCause) -> &'static str {
    match cause {
        ExpiryCause::Silence => "SILENCE",
        ExpiryCause::Timeout => "TIMEOUT",
    }
}

fn release_cause(cause: ReleaseCause) -> &'static str {
    match cause {
        ReleaseCause::Worker => "WORKER",
        ReleaseCause::Undelivered => "UNDELIVERED",
        ReleaseCause::Session => "SESSION",
    }
}

fn cancel_cause(cause: CancelCause) -> &'static str {
    match cause {
        CancelCause::User => "USER",
        CancelCause::Deadline => "DEADLINE",
    }
}
