//! POST /v1/tasks/{taskId}/redrive: do a dead letter again, as a new task that names the old one.

use authority::command::{RedriveAnswer, RedriveTask};
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;

use crate::app::App;
use crate::convert::ids::{new_task_id, parse_task_id};
use crate::convert::problem::{Code, Problem};
use crate::convert::scope::InScope;
use crate::convert::task_json;
use crate::edge::json::{InOrDefault, InPath, Out};

/// There is nothing to say but the task.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Redrive a FAILED or DEAD task.
#[utoipa::path(
    post,
    path = "/v1/tasks/{taskId}/redrive",
    tag = "Tasks",
    params(("taskId" = String, Path)),
    responses(
        (status = 201, description = "The new task", body = wire::Task),
        (status = 200, description = "It was redriven before, as this task", body = wire::Task),
        (status = 404, body = wire::Problem),
        (status = 409, description = "The task is not FAILED or DEAD", body = wire::Problem),
        (status = 429, body = wire::Problem),
        (status = 503, body = wire::Problem)
    )
)]
pub(crate) async fn redrive(
    State(app): State<App>,
    InScope(scope): InScope,
    InPath(task_id): InPath<String>,
    InOrDefault(Nothing {}): InOrDefault<Nothing>,
) -> Result<Out<wire::Task>, Problem> {
    let unknown = || Problem::unknown_task(&task_id);
    let task = parse_task_id(&task_id).ok_or_else(unknown)?;
    let id = new_task_id(app.handle().now())?;
    let (status, new) = match app.handle().redrive(RedriveTask { scope: scope.clone(), task, id }).await? {
        RedriveAnswer::Created(new) => (StatusCode::CREATED, new),
        RedriveAnswer::Existing(new) => (StatusCode::OK, new),
        RedriveAnswer::UnknownTask => return Err(unknown()),
        RedriveAnswer::NotADeadLetter(state) => {
            let detail = format!("the task is {}", task_json::state_to_wire(state).name());
            return Err(Problem::new(Code::NotADeadLetter, detail));
        }
        RedriveAnswer::Refused(why) => return Err(why.into()),
    };
    let detail = app.handle().task(scope, new).await?.ok_or_else(unknown)?;
    Ok(Out(status, task_json::to_wire(*detail)))
}
