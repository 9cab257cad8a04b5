//! SubmitTasks: many submits in one go, each accepted or refused on its own.

use std::collections::BTreeMap;

use authority::Scope;
use authority::command::{SubmitAnswer, SubmitTask};
use axum::http::StatusCode;
use bytes::Bytes;
use tonic::Status;
use wire::grpc::{self, SubmitTasksRequest, SubmitTasksResponse, SubmittedTask};
use wire::{Json, MAX_BATCH_TASKS};

use super::report::not_json;
use super::values::{given, nonzero, parse_timestamp, state};
use crate::app::App;
use crate::convert::grpc_status;
use crate::convert::problem::{Code, Problem};
use crate::convert::submission::{command, conflict};
use crate::edge::strict_json;

pub(super) async fn submit(
    app: &App,
    scope: &Scope,
    request: SubmitTasksRequest,
) -> Result<SubmitTasksResponse, Status> {
    if request.tasks.len() > MAX_BATCH_TASKS {
        let detail = format!("tasks: must be at most {MAX_BATCH_TASKS}, but are {}", request.tasks.len());
        return Err(Problem::new(Code::TooManyTasks, detail).into());
    }
    let mut commands = Vec::with_capacity(request.tasks.len());
    let parsed: Vec<_> = request
        .tasks
        .into_iter()
        .map(|task| parse(app, scope, task).map(|command| commands.push(command)))
        .collect();
    let answers = if commands.is_empty() {
        Vec::new()
    } else {
        app.handle().submit_batch(commands).await.map_err(Problem::from)?
    };
    let mut answers = answers.into_iter();
    let tasks: Vec<_> = parsed
        .into_iter()
        .map(|parsed| parsed.and_then(|()| answers.next().map_or_else(|| Err(unanswered()), accepted)))
        .collect();
    // When nothing was accepted for lack of room, the call as a whole may be repeated later.
    let full = tasks
        .iter()
        .all(|task| task.as_ref().is_err_and(|why| why.code.status() == StatusCode::TOO_MANY_REQUESTS));
    if full && let Some(Err(problem)) = tasks.first() {
        return Err(problem.clone().into());
    }
    let item = |task: Result<SubmittedTask, Problem>| task.unwrap_or_else(refused);
    Ok(SubmitTasksResponse { tasks: tasks.into_iter().map(item).collect() })
}

fn parse(app: &App, scope: &Scope, task: grpc::SubmitTask) -> Result<SubmitTask, Problem> {
    let owned = |text: String| given(&text).map(str::to_owned);
    let pairs: BTreeMap<_, _> = task.properties.into_iter().collect();
    let task = wire::SubmitTask {
        queue: task.queue,
        payload: json("payload", &task.payload)?.unwrap_or_else(Json::null),
        priority: nonzero(task.priority),
        delay_ms: nonzero(task.delay_ms),
        dedup_key: owned(task.dedup_key),
        max_attempts: nonzero(task.max_attempts),
        backoff: task.backoff.map(|backoff| wire::Backoff {
            initial_ms: backoff.initial_ms,
            factor: backoff.factor,
            max_ms: backoff.max_ms,
            jitter: backoff.jitter,
        }),
        properties: Some(pairs).filter(|pairs| !pairs.is_empty()),
        deadline: task.deadline.map(|deadline| parse_timestamp("deadline", deadline)).transpose()?,
        timeout_ms: nonzero(task.timeout_ms),
        lease_ms: nonzero(task.lease_ms),
        run_id: owned(task.run_id),
        asset_id: owned(task.asset_id),
        task_key: owned(task.task_key),
        resources: json("resources_json", &task.resources_json)?,
    };
    command(app, scope, &task)
}

/// A JSON text, held to the same rules as a request over HTTP.
fn json(field: &str, text: &Bytes) -> Result<Option<Json>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    strict_json::check(text).map_err(|fault| not_json(field, &fault))?;
    let parsed = std::str::from_utf8(text).ok().and_then(|text| Json::from_text(text).ok());
    parsed.map(Some).ok_or_else(|| Problem::field(field, "is not JSON"))
}

fn accepted(answer: SubmitAnswer) -> Result<SubmittedTask, Problem> {
    let accepted = |task_id: String, state: grpc::TaskState| {
        Ok(SubmittedTask { task_id, state: state.into(), problem: None })
    };
    match answer {
        SubmitAnswer::Created(task) => accepted(task.to_string(), grpc::TaskState::Waiting),
        SubmitAnswer::Existing(view) => accepted(view.task.id.to_string(), state(view.task.state())),
        SubmitAnswer::DedupConflict(existing) => Err(conflict(existing)),
        SubmitAnswer::Refused(why) => Err(why.into()),
    }
}

fn refused(problem: Problem) -> SubmittedTask {
    SubmittedTask { problem: Some(grpc_status::item(problem)), ..SubmittedTask::default() }
}

/// The coordinator answers each submit; fewer answers would be a bug in it.
fn unanswered() -> Problem {
    Problem::new(Code::OutcomeUnknown, "the coordinator gave no answer for this task")
}
