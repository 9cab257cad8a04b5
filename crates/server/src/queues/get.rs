//! GET /v1/queues/{name}: settings, counts by state, the age of the oldest waiting task.

use authority::QueueKey;

use super::answer;
use crate::convert::{Problem, ScopedPath, names};
use crate::edge::{Fails, Out, Reads};

/// Look at a queue.
#[utoipa::path(
    get,
    path = "/v1/queues/{name}",
    tag = "Queues",
    params(("name" = String, Path)),
    responses((status = 200, body = wire::Queue), Fails<400>, Fails<404>, Fails<503>)
)]
pub(crate) async fn get(
    ScopedPath { app, scope, id: name }: ScopedPath,
    Reads(reads): Reads,
) -> Result<Out<wire::Queue>, Problem> {
    let key = QueueKey { scope, name: names::name("name", &name)? };
    let view = reads.queue(key).await?.ok_or_else(|| Problem::unknown_queue(&name))?;
    Ok(Out::ok(answer::queue(*view, app.handle.now())))
}
