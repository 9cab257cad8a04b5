//! POST /v1/tasks/{taskId}/cancel: a waiting task ends at once, a leased one is asked to stop. Asking again is
//! harmless.

use authority::command::{CancelTask, EndAnswer};
use axum::extract::State;
use axum::http::StatusCode;

use crate::app::App;
use crate::convert::ids::parse_task_id;
use crate::convert::names::message;
use crate::convert::problem::Problem;
use crate::convert::scope::InScope;
use crate::convert::task_json;
use crate::edge::json::{InOrDefault, InPath, Out};

const DEFAULT_REASON: &str = "user_requested";

/// Cancel a task.
#[utoipa::path(
    post,
    path = "/v1/tasks/{taskId}/cancel",
    tag = "Tasks",
    params(("taskId" = String, Path)),
    request_body(content = Option<wire::CancelTask>),
    responses(
        (status = 200, description = "The task, which has ended or is asked to stop", body = wire::Task),
        (status = 400, body = wire::Problem),
        (status = 404, body = wire::Problem),
        (status = 503, body = wire::Problem)
    )
)]
pub(crate) async fn cancel(
    State(app): State<App>,
    InScope(scope): InScope,
    InPath(task_id): InPath<String>,
    InOrDefault(body): InOrDefault<wire::CancelTask>,
) -> Result<Out<wire::Task>, Problem> {
    let unknown = || Problem::unknown_task(&task_id);
    let task = parse_task_id(&task_id).ok_or_else(unknown)?;
    let reason = message("reason", body.reason.as_deref().unwrap_or(DEFAULT_REASON))?;
    match app.handle().cancel(CancelTask { scope: scope.clone(), task, reason }).await? {
        EndAnswer::UnknownTask => Err(unknown()),
        EndAnswer::Accepted => {
            let detail = app.handle().task(scope, task).await?.ok_or_else(unknown)?;
            Ok(Out(StatusCode::OK, task_json::to_wire(*detail)))
        }
    }
}
