//! POST /v1/tasks: accept a task, once for each dedup key.

use authority::command::SubmitAnswer;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use coordinator::TaskDetail;

use crate::convert::submission::{command, conflict};
use crate::convert::{Problem, Scoped, task_json};
use crate::edge::auth::Caller;
use crate::edge::{Fails, In, Out};

/// Submit a task.
#[utoipa::path(
    post,
    path = "/v1/tasks",
    tag = "Tasks",
    request_body = wire::SubmitTask,
    responses(
        (status = 201, description = "The task was created", body = wire::Submitted),
        (status = 200, description = "The dedup key and the content are those of this task", body = wire::Task),
        (status = 409, description = "The dedup key belongs to a task with other content", body = wire::Problem),
        Fails<400>, Fails<413>, Fails<429>, Fails<503>
    )
)]
pub(crate) async fn submit(
    Scoped { app, scope }: Scoped,
    caller: Caller,
    In(task): In<wire::SubmitTask>,
) -> Result<Response, Problem> {
    caller.check_queues([&*task.queue])?;
    let command = command(&app, &scope, task)?;
    match app.handle.submit(command).await? {
        SubmitAnswer::Created(task) => {
            let state = wire::TaskState::Waiting;
            let submitted = wire::Submitted { task_id: task.to_string(), state };
            Ok(Out(StatusCode::CREATED, submitted).into_response())
        }
        SubmitAnswer::Existing(view) => {
            let existing = task_json::to_wire(TaskDetail { view: *view, progress: None });
            Ok(Out::ok(existing).into_response())
        }
        SubmitAnswer::DedupConflict(existing) => Err(conflict(existing)),
        SubmitAnswer::Refused(why) => Err(why.into()),
    }
}
