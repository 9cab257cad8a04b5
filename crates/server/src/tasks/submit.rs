//! POST /v1/tasks: accept a task, once for each dedup key.

use std::sync::Arc;

use authority::command::{SubmitAnswer, SubmitTask};
use authority::limits::{
    MAX_ATTEMPTS, MAX_INLINE_BYTES, MAX_LEASE_MS, MAX_RESOURCES_BYTES, MAX_SPAN_MS, MIN_LEASE_MS,
};
use authority::{Backoff, Dedup, QueueKey, Scope, TaskId, TaskOptions, TaskState, TaskView};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use coordinator::TaskDetail;

use super::answer;
use crate::app::App;
use crate::json::{In, Out};
use crate::names::{name, optional_name, optional_within, properties, within};
use crate::problem::{Code, Problem};
use crate::scope::InScope;
use crate::{content, ids, time};

/// Submit a task.
#[utoipa::path(
    post,
    path = "/v1/tasks",
    tag = "Tasks",
    request_body = wire::SubmitTask,
    responses(
        (status = 201, description = "The task was created", body = wire::Submitted),
        (status = 200, description = "The dedup key and the content are those of this task", body = wire::Task),
        (status = 400, body = wire::Problem),
        (status = 409, description = "The dedup key belongs to a task with other content", body = wire::Problem),
        (status = 413, body = wire::Problem),
        (status = 429, body = wire::Problem),
        (status = 503, body = wire::Problem)
    )
)]
pub async fn submit(
    State(app): State<App>,
    InScope(scope): InScope,
    In(task): In<wire::SubmitTask>,
) -> Result<Response, Problem> {
    let command = command(&app, &scope, &task)?;
    match app.handle().submit(command).await? {
        SubmitAnswer::Created(task) => Ok(Out(StatusCode::CREATED, submitted(task)).into_response()),
        SubmitAnswer::Existing(view) => {
            let existing = answer::of(&app, TaskDetail { view: *view, progress: None }).await?;
            Ok(Out(StatusCode::OK, existing).into_response())
        }
        SubmitAnswer::DedupConflict(existing) => Err(conflict(existing)),
        SubmitAnswer::Refused(why) => Err(why.into()),
    }
}

pub fn submitted(task: TaskId) -> wire::Submitted {
    wire::Submitted { task_id: task.to_string(), state: answer::state(TaskState::Waiting) }
}

pub fn conflict(existing: TaskId) -> Problem {
    let detail = format!("dedupKey: belongs to task {existing}, whose payload or properties differ");
    Problem { field: Some("dedupKey".to_owned()), ..Problem::new(Code::DedupConflict, detail) }
        .naming_task(existing)
}

/// The state of a task that was found by its dedup key.
pub fn found(view: &TaskView) -> wire::Submitted {
    wire::Submitted { task_id: view.task.id.to_string(), state: answer::state(view.task.state()) }
}

/// The command that a submit asks for, checked.
pub fn command(app: &App, scope: &Scope, task: &wire::SubmitTask) -> Result<SubmitTask, Problem> {
    let queue = Arc::new(QueueKey { scope: scope.clone(), name: name("queue", &task.queue)? });
    let payload = inline("payload", &task.payload)?;
    let delay_ms = within("delayMs", task.delay_ms.unwrap_or(0), 0..=MAX_SPAN_MS)?;
    let properties = properties("properties", task.properties.as_ref())?;
    let dedup = match optional_name("dedupKey", task.dedup_key.as_deref())? {
        None => None,
        Some(key) => {
            let content = content::submission(&payload, &properties)
                .map_err(|fault| Problem::field("payload", fault.what))?;
            Some(Dedup { key, content })
        }
    };
    let options = TaskOptions {
        dedup,
        deadline: task.deadline.map(|deadline| time::read("deadline", deadline)).transpose()?,
        timeout_ms: optional_within("timeoutMs", task.timeout_ms, 1..=MAX_SPAN_MS)?,
        lease_ms: optional_within("leaseMs", task.lease_ms, MIN_LEASE_MS..=MAX_LEASE_MS)?,
        max_attempts: optional_within("maxAttempts", task.max_attempts, 1..=MAX_ATTEMPTS)?,
        backoff: task.backoff.as_ref().map(backoff).transpose()?,
        run_id: optional_name("runId", task.run_id.as_deref())?,
        asset_id: optional_name("assetId", task.asset_id.as_deref())?,
        task_key: optional_name("taskKey", task.task_key.as_deref())?,
        resources: task.resources.as_ref().map(resources).transpose()?,
        redrive_of: None,
    };
    Ok(SubmitTask {
        id: ids::new_task_id(app.handle().now())?,
        queue,
        payload,
        priority: task.priority.unwrap_or(0),
        delay_ms,
        properties,
        options: (options != TaskOptions::default()).then(|| Arc::new(options)),
        operation: None,
    })
}

/// A payload or result that is kept with its task.
pub fn inline(field: &str, json: &wire::Json) -> Result<Arc<[u8]>, Problem> {
    let text = json.as_text().as_bytes();
    if text.len() > MAX_INLINE_BYTES {
        let detail = format!("{field}: must have at most {MAX_INLINE_BYTES} bytes, but has {}", text.len());
        return Err(Problem { field: Some(field.to_owned()), ..Problem::new(Code::PayloadTooLarge, detail) });
    }
    Ok(Arc::from(text))
}

/// A backoff whose missing parts follow the defaults. It is kept in thousandths.
pub fn backoff(backoff: &wire::Backoff) -> Result<Backoff, Problem> {
    let default = Backoff::default();
    let permille = |value: f64| (value * 1_000.0).round() as u32;
    let factor = optional_within("backoff.factor", backoff.factor, 1.0..=100.0)?;
    let jitter = optional_within("backoff.jitter", backoff.jitter, 0.0..=1.0)?;
    Ok(Backoff {
        initial_ms: optional_within("backoff.initialMs", backoff.initial_ms, 0..=MAX_SPAN_MS)?
            .unwrap_or(default.initial_ms),
        factor_permille: factor.map_or(default.factor_permille, permille),
        max_ms: optional_within("backoff.maxMs", backoff.max_ms, 0..=MAX_SPAN_MS)?.unwrap_or(default.max_ms),
        jitter_permille: jitter.map_or(default.jitter_permille, permille),
    })
}

fn resources(json: &wire::Json) -> Result<Arc<[u8]>, Problem> {
    let text = json.as_text();
    if !text.starts_with('{') {
        return Err(Problem::field("resources", "must be a JSON object"));
    }
    if text.len() > MAX_RESOURCES_BYTES {
        let what = format!("must have at most {MAX_RESOURCES_BYTES} bytes, but has {}", text.len());
        return Err(Problem::field("resources", what));
    }
    Ok(Arc::from(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_is_checked_and_filled_up() {
        let half = wire::Backoff { factor: Some(1.5), ..wire::Backoff::default() };
        assert_eq!(backoff(&half).unwrap(), Backoff { factor_permille: 1_500, ..Backoff::default() });
        let bad = [
            wire::Backoff { factor: Some(0.99), ..wire::Backoff::default() },
            wire::Backoff { factor: Some(f64::NAN), ..wire::Backoff::default() },
            wire::Backoff { jitter: Some(-0.1), ..wire::Backoff::default() },
            wire::Backoff { jitter: Some(1.1), ..wire::Backoff::default() },
            wire::Backoff { initial_ms: Some(u64::MAX), ..wire::Backoff::default() },
            wire::Backoff { max_ms: Some(u64::MAX), ..wire::Backoff::default() },
        ];
        assert!(bad.iter().all(|bad| backoff(bad).is_err()));
    }

    #[test]
    fn i3_a_payload_above_the_limit_is_too_large() {
        let json = |bytes: usize| wire::Json::from_value(&"x".repeat(bytes - 2)).unwrap();
        assert!(inline("payload", &json(MAX_INLINE_BYTES)).is_ok());
        assert_eq!(inline("payload", &json(MAX_INLINE_BYTES + 1)).unwrap_err().code, Code::PayloadTooLarge);
    }

    #[test]
    fn resources_are_an_object() {
        assert!(resources(&wire::Json::from_text("{\"cpu\":2}").unwrap()).is_ok());
        assert!(resources(&wire::Json::from_text("[]").unwrap()).is_err());
    }
}
