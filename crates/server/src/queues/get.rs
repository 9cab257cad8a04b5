//! GET /v1/queues/{name}: settings, counts by state, the age of the oldest waiting task.

use authority::QueueKey;
use axum::extract::State;
use axum::http::StatusCode;

use super::answer;
use crate::app::App;
use crate::convert::names;
use crate::convert::problem::Problem;
use crate::convert::scope::InScope;
use crate::edge::json::{InPath, Out};

/// Look at a queue.
#[utoipa::path(
    get,
    path = "/v1/queues/{name}",
    tag = "Queues",
    params(("name" = String, Path)),
    responses(
        (status = 200, body = wire::Queue),
        (status = 400, body = wire::Problem),
        (status = 404, body = wire::Problem),
        (status = 503, body = wire::Problem)
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    InScope(scope): InScope,
    InPath(name): InPath<String>,
) -> Result<Out<wire::Queue>, Problem> {
    let key = QueueKey { scope, name: names::name("name", &name)? };
    let view = app.handle().queue(key).await?.ok_or_else(|| Problem::unknown_queue(&name))?;
    Ok(Out(StatusCode::OK, answer::queue(*view, app.handle().now())))
}
