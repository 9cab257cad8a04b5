//! POST /v1/tasks/batch: many submits in one go. Each is accepted or refused on its own, and the answers stand in
//! the order of the request.

use authority::Scope;
use authority::command::{SubmitAnswer, SubmitTask};
use serde::Deserialize;
use wire::{BatchItem, MAX_BATCH_TASKS, Submitted, SubmittedBatch};

use super::submit::{found, submitted};
use crate::app::App;
use crate::convert::submission::{command, conflict};
use crate::convert::{Code, Problem, Scoped};
use crate::edge::json::{MAX_BATCH_BODY_BYTES, parse_checked};
use crate::edge::{Fails, In, Out};

/// The batch with its tasks still unread, so that one bad task does not spoil the others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch {
    tasks: Vec<wire::Json>,
}

/// Submit many tasks.
#[utoipa::path(
    post,
    path = "/v1/tasks/batch",
    tag = "Tasks",
    request_body = wire::SubmitBatch,
    responses(
        (status = 200, description = "One answer for each task, in order", body = SubmittedBatch),
        Fails<400>, Fails<413>, Fails<503>
    )
)]
pub(crate) async fn submit_batch(
    Scoped { app, scope }: Scoped,
    In(batch): In<Batch, MAX_BATCH_BODY_BYTES>,
) -> Result<Out<SubmittedBatch>, Problem> {
    if batch.tasks.len() > MAX_BATCH_TASKS {
        let detail =
            format!("tasks: must have at most {MAX_BATCH_TASKS} entries, but has {}", batch.tasks.len());
        let problem = Problem::new(Code::TooManyTasks, detail);
        return Err(Problem { field: Some("tasks".to_owned()), ..problem });
    }
    let parsed: Vec<_> =
        batch.tasks.iter().enumerate().map(|(n, task)| parse_task(&app, &scope, n, task)).collect();
    let commands = parsed.iter().filter_map(|task| task.as_ref().ok().cloned()).collect();
    let mut answers = app.handle.submit_batch(commands).await?.into_iter();
    let tasks = parsed.into_iter().map(|task| match task {
        Err(problem) => refused(problem),
        Ok(_) => answers.next().map_or_else(unanswered, item),
    });
    Ok(Out::ok(SubmittedBatch { tasks: tasks.collect() }))
}

fn parse_task(app: &App, scope: &Scope, n: usize, task: &wire::Json) -> Result<SubmitTask, Problem> {
    let place = format!("tasks[{n}]");
    let task: wire::SubmitTask = parse_checked(task.as_text().as_bytes(), &place)?;
    command(app, scope, task).map_err(|problem| match problem.field {
        None => problem,
        Some(field) => Problem {
            field: Some(format!("{place}.{field}")),
            detail: format!("{place}.{}", problem.detail),
            ..problem
        },
    })
}

fn item(answer: SubmitAnswer) -> BatchItem {
    match answer {
        SubmitAnswer::Created(task) => accepted(submitted(task)),
        SubmitAnswer::Existing(view) => accepted(found(&view)),
        SubmitAnswer::DedupConflict(existing) => refused(conflict(existing)),
        SubmitAnswer::Refused(why) => refused(why.into()),
    }
}

fn accepted(task: Submitted) -> BatchItem {
    BatchItem { task_id: Some(task.task_id), state: Some(task.state), error: None }
}

fn refused(problem: Problem) -> BatchItem {
    BatchItem { task_id: None, state: None, error: Some(problem.into_wire()) }
}

/// The coordinator answers each submit; fewer answers would be a bug in it.
fn unanswered() -> BatchItem {
    refused(Problem::new(Code::OutcomeUnknown, "the coordinator gave no answer for this task"))
}
