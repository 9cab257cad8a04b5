//! GET /v1/queues: every queue of the workspace.

use wire::QueueList;

use super::answer;
use crate::convert::{Problem, Scoped};
use crate::edge::{Out, Reads};

/// List the queues.
#[utoipa::path(
    get,
    path = "/v1/queues",
    tag = "Queues",
    responses((status = 200, body = QueueList), (status = 503, body = wire::Problem))
)]
pub(crate) async fn list(
    Scoped { app, scope }: Scoped,
    Reads(reads): Reads,
) -> Result<Out<QueueList>, Problem> {
    let views = reads.queues(scope).await?;
    let now = app.handle.now();
    let queues = views.into_iter().map(|view| answer::queue(view, now)).collect();
    Ok(Out::ok(QueueList { queues }))
}
