//! GET /v1/queues/{name}: settings, counts by state, the age of the oldest waiting task.

use authority::QueueKey;

use super::answer;
use crate::convert::{Problem, Scoped, names};
use crate::edge::{Fails, InPath, Out};

/// Look at a queue.
#[utoipa::path(
    get,
    path = "/v1/queues/{name}",
    tag = "Queues",
    params(("name" = String, Path)),
    responses((status = 200, body = wire::Queue), Fails<400>, Fails<404>, Fails<503>)
)]
pub(crate) async fn get(
    Scoped { app, scope }: Scoped,
    InPath(name): InPath<String>,
) -> Result<Out<wire::Queue>, Problem> {
    let key = QueueKey { scope, name: names::name("name", &name)? };
    let view = app.handle.queue(key).await?.ok_or_else(|| Problem::unknown_queue(&name))?;
    Ok(Out::ok(answer::queue(*view, app.handle.now())))
}
