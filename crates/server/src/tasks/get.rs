//! GET /v1/tasks/{taskId}: a task as it is, or once it is final.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use coordinator::WaitCondition;
use wire::MAX_WAIT_MS;

use crate::app::App;
use crate::convert::ids::parse_task_id;
use crate::convert::problem::Problem;
use crate::convert::scope::InScope;
use crate::convert::task_json;
use crate::edge::json::{InPath, InQuery, Out};

/// Look at a task, or wait for its end.
#[utoipa::path(
    get,
    path = "/v1/tasks/{taskId}",
    tag = "Tasks",
    params(("taskId" = String, Path), wire::WaitTask),
    responses(
        (status = 200, body = wire::Task),
        (status = 400, body = wire::Problem),
        (status = 404, body = wire::Problem),
        (status = 503, body = wire::Problem)
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    InScope(scope): InScope,
    InPath(task_id): InPath<String>,
    InQuery(query): InQuery<wire::WaitTask>,
) -> Result<Out<wire::Task>, Problem> {
    let unknown = || Problem::unknown_task(&task_id);
    let task = parse_task_id(&task_id).ok_or_else(unknown)?;
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0).min(MAX_WAIT_MS));
    let detail = if wait.is_zero() {
        app.handle().task(scope, task).await?
    } else {
        let end = app.handle().wait_task(scope.clone(), task, WaitCondition::Final, wait);
        match app.waiting(wait, end).await? {
            Some(detail) => detail?,
            None => app.handle().task(scope, task).await?,
        }
    };
    let task = task_json::to_wire(*detail.ok_or_else(unknown)?);
    Ok(Out(StatusCode::OK, task))
}
