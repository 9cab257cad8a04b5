//! GET /v1/tasks/{taskId}/history: the records of a task.

use authority::{Event, FieldValue};
use coordinator::HistoryRecord;
use serde_json::{Map, Value, json};
use wire::{HistoryEvent, TaskHistory};

use crate::convert::{Problem, ScopedPath, task_json, to_timestamp};
use crate::edge::{Fails, Out};

/// A task's history from the ledger, oldest first.
#[utoipa::path(
    get,
    path = "/v1/tasks/{taskId}/history",
    tag = "Tasks",
    params(("taskId" = String, Path)),
    responses((status = 200, body = TaskHistory), Fails<404>, Fails<410>, Fails<503>)
)]
pub(crate) async fn history(call: ScopedPath) -> Result<Out<TaskHistory>, Problem> {
    let task = call.task()?;
    let Some(history) = call.app.handle.history(call.scope.clone(), task).await? else {
        return Err(call.missing(task).await);
    };
    let events = history.records.into_iter().map(event).collect();
    Ok(Out::ok(TaskHistory { events, truncated: history.truncated }))
}

/// The JSON that a history shows whole; of all other content it shows the size.
const DETAILS: [&str; 2] = ["metrics", "partialProgress"];

/// The fields of a record that a history shows, which are those that [`HistoryEvent`] has.
fn event(record: HistoryRecord) -> HistoryEvent {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    if matches!(record.event, Event::LeaseGranted(_)) {
        put("fencingToken", json!(record.position.0));
    }
    for (name, value) in record.event.fields() {
        match value {
            FieldValue::Number(number) => put(name, json!(number)),
            FieldValue::Signed(number) => put(name, json!(number)),
            FieldValue::Flag(flag) => put(name, json!(flag)),
            FieldValue::Text(text) => put(name, json!(text)),
            FieldValue::Time(at) => put(name, json!(to_timestamp(at))),
            FieldValue::Task(task) => put(name, json!(task.to_string())),
            FieldValue::Content(bytes) if DETAILS.contains(&name) => {
                put(name, serde_json::from_slice(bytes).unwrap_or_default());
            }
            FieldValue::Content(bytes) => put(&format!("{name}Bytes"), json!(bytes.len())),
            FieldValue::Queue(key) => put(name, json!(*key.name)),
            FieldValue::Error(error) => put(name, json!(task_json::error_to_wire(error))),
            FieldValue::Actor(by) => {
                put(name, json!({"kind": by.kind.name(), "id": *by.id, "name": *by.name}));
            }
            FieldValue::Options(options) => {
                options.redrive_of.iter().for_each(|task| put("redriveOf", json!(task.to_string())));
            }
            FieldValue::Tasks(_)
            | FieldValue::Digest(_)
            | FieldValue::Properties(_)
            | FieldValue::Backoff(_)
            | FieldValue::Categories(_)
            | FieldValue::Push(_)
            | FieldValue::Texts(_)
            | FieldValue::Roles(_)
            | FieldValue::Config(_) => {}
        }
    }
    put("position", json!(record.position.0));
    put("at", json!(to_timestamp(record.at)));
    put("type", json!(record.event.name()));
    // The names and types are those of the authority's table; a test reads every event.
    serde_json::from_value(Value::Object(fields)).unwrap_or_else(|error| {
        tracing::error!(position = record.position.0, %error, "a record does not fit the history's fields");
        HistoryEvent::default()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use authority::event::*;
    use authority::{
        Actor, ActorKind, CancelCause, Category, DeadReason, Digest, Position, QueueKey, ReportDetails,
        Scope, TaskError, TaskId, TaskOptions, Time,
    };

    use super::*;

    fn events() -> Vec<Event> {
        let (task, fencing_token, digest) = (TaskId(1), Position(7), Digest([1; 16]));
        let scope = Scope { tenant: "t".into(), workspace: "w".into() };
        let options = TaskOptions { redrive_of: Some(TaskId(2)), lease_ms: Some(5), ..Default::default() };
        let error = TaskError { category: Category::Timeout, code: Some("C".into()), message: "slow".into() };
        let details = ReportDetails {
            metrics: Some(Arc::from(*br#"{"n":1}"#)),
            stack_trace: Some("at f".into()),
            cancelled_during_phase: Some("upload".into()),
            partial_progress: Some(Arc::from(*b"[2]")),
        };
        vec![
            Event::TaskCreated(Box::new(TaskCreated {
                task,
                queue: Arc::new(QueueKey { scope, name: "mail".into() }),
                payload: Arc::from(*b"{}"),
                priority: -3,
                not_before: Some(Time(1_000)),
                properties: Arc::default(),
                options: Some(Arc::new(options)),
                operation: Some("o".into()),
                by: None,
            })),
            Event::LeaseGranted(LeaseGranted {
                task,
                attempt: 2,
                worker: "w".into(),
                session: Some("s".into()),
                request: Some(digest),
                length_ms: 60_000,
                expires_at: Time(2_000),
                contract: Some(authority::Contract::Leases),
            }),
            Event::LeaseExpired(LeaseExpired {
                task,
                fencing_token,
                cause: ExpiryCause::Silence,
                exhausted: false,
                since: None,
            }),
            Event::TaskCompleted(TaskCompleted {
                task,
                fencing_token,
                digest,
                result: Arc::from(*b"123"),
                details: None,
            }),
            Event::TaskFailed(TaskFailed {
                task,
                fencing_token,
                digest,
                error: error.clone(),
                next: NextStep::RetryAt(Time(3_000)),
                details: Some(Arc::new(details)),
            }),
            Event::TaskDead(TaskDead {
                task,
                reason: DeadReason::Cancelled,
                detail: Some("enough".into()),
                report: Some(DeadReport { fencing_token, digest, error, details: None }),
                by: None,
            }),
            Event::CancelRequested(CancelRequested {
                task,
                cause: CancelCause::User,
                reason: "enough".into(),
                grace_until: Time(4_000),
                by: Some(Arc::new(Actor::new(ActorKind::Token, "https://issuer", "ci"))),
            }),
        ]
    }

    fn converted(event: Event) -> Value {
        json!(super::event(HistoryRecord { position: Position(9), at: Time(0), event }))
    }

    #[test]
    fn every_field_of_a_history_comes_from_the_event_table() {
        let expected = [
            json!({"queue": "mail", "priority": -3, "payloadBytes": 2, "notBefore": "1970-01-01T00:00:01Z",
                "redriveOf": "00000000-0000-0000-0000-000000000002", "operation": "o"}),
            json!({"attempt": 2, "fencingToken": 9, "workerId": "w", "leaseMs": 60_000,
                "expiresAt": "1970-01-01T00:00:02Z", "contract": "LEASES"}),
            json!({"fencingToken": 7, "cause": "SILENCE", "exhausted": false}),
            json!({"fencingToken": 7, "resultBytes": 3}),
            json!({"fencingToken": 7, "retryAt": "1970-01-01T00:00:03Z", "metrics": {"n": 1}, "stackTrace": "at f",
                "cancelledDuringPhase": "upload", "partialProgress": [2],
                "error": {"category": "TIMEOUT", "code": "C", "message": "slow"}}),
            json!({"reason": "CANCELLED", "reasonDetail": "enough", "fencingToken": 7,
                "error": {"category": "TIMEOUT", "code": "C", "message": "slow"}}),
            json!({"cause": "USER", "reason": "enough", "graceUntil": "1970-01-01T00:00:04Z",
                "by": {"kind": "token", "id": "https://issuer", "name": "ci"}}),
        ];
        for (event, mut expected) in events().into_iter().zip(expected) {
            expected["type"] = json!(event.name());
            expected["position"] = json!(9);
            expected["at"] = json!("1970-01-01T00:00:00Z");
            assert_eq!(converted(event), expected);
        }
    }
}
