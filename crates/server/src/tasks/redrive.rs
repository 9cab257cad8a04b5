//! POST /v1/tasks/{taskId}/redrive: do a dead letter again, as a new task that names the old one.

use authority::command::{RedriveAnswer, RedriveTask};
use axum::http::StatusCode;
use serde::Deserialize;

use crate::convert::ids::new_task_id;
use crate::convert::{Code, Problem, ScopedPath, task_json};
use crate::edge::auth::Caller;
use crate::edge::{Fails, InOrDefault, Out};

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
        (status = 409, description = "The task is not FAILED or DEAD", body = wire::Problem),
        Fails<404>, Fails<410>, Fails<429>, Fails<503>
    )
)]
pub(crate) async fn redrive(
    call: ScopedPath,
    caller: Caller,
    InOrDefault(Nothing {}): InOrDefault<Nothing>,
) -> Result<Out<wire::Task>, Problem> {
    let task = call.task()?;
    caller.check_task(&call.app.handle, &call.scope, task).await?;
    let id = new_task_id(call.app.handle.now())?;
    let redrive = RedriveTask { scope: call.scope.clone(), task, id, by: caller.actor() };
    let (status, new) = match call.app.handle.redrive(redrive).await? {
        RedriveAnswer::Created(new) => (StatusCode::CREATED, new),
        RedriveAnswer::Existing(new) => (StatusCode::OK, new),
        RedriveAnswer::UnknownTask => return Err(call.missing(task).await),
        RedriveAnswer::NotADeadLetter(state) => {
            let detail = format!("the task is {}", task_json::state_to_wire(state).name());
            return Err(Problem::new(Code::NotADeadLetter, detail));
        }
        RedriveAnswer::Refused(why) => return Err(why.into()),
    };
    Ok(Out(status, call.read(new).await?))
}
