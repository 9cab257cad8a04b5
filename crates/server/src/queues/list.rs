//! GET /v1/queues: every queue of the workspace.

use axum::extract::State;
use axum::http::StatusCode;
use wire::QueueList;

use super::answer;
use crate::app::App;
use crate::convert::problem::Problem;
use crate::convert::scope::InScope;
use crate::edge::json::Out;

/// List the queues.
#[utoipa::path(
    get,
    path = "/v1/queues",
    tag = "Queues",
    responses((status = 200, body = QueueList), (status = 503, body = wire::Problem))
)]
pub(crate) async fn list(State(app): State<App>, InScope(scope): InScope) -> Result<Out<QueueList>, Problem> {
    let views = app.handle().queues(scope).await?;
    let now = app.handle().now();
    let queues = views.into_iter().map(|view| answer::queue(view, now)).collect();
    Ok(Out(StatusCode::OK, QueueList { queues }))
}
