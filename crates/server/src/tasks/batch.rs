//! POST /v1/tasks/batch: many submits in one go. Each is accepted or refused on its own, and the answers stand in
//! the order of the request.

use authority::Scope;
use authority::command::SubmitTask;
use serde::Deserialize;
use wire::{BatchItem, MAX_BATCH_TASKS, SubmittedBatch};

use crate::app::App;
use crate::convert::submission::{command, submit_all};
use crate::convert::{Code, Problem, Scoped, task_json};
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
    let parsed = batch.tasks.iter().enumerate().map(|(n, task)| parse_task(&app, &scope, n, task));
    let tasks = submit_all(&app, parsed).await?.into_iter().map(|answer| match answer {
        Ok((task, state)) => {
            let (task_id, state) = (Some(task.to_string()), Some(task_json::state_to_wire(state)));
            BatchItem { task_id, state, error: None }
        }
        Err(problem) => BatchItem { task_id: None, state: None, error: Some(problem.into_wire()) },
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
