//! GET /v1/tasks/{taskId}: a task as it is, or once it is final.

use std::time::Duration;

use coordinator::WaitCondition;
use wire::MAX_WAIT_MS;

use crate::convert::{Problem, ScopedPath};
use crate::edge::{Fails, InQuery, Out, Reads};

/// Look at a task, or wait for its end.
#[utoipa::path(
    get,
    path = "/v1/tasks/{taskId}",
    tag = "Tasks",
    params(("taskId" = String, Path), wire::WaitTask),
    responses((status = 200, body = wire::Task), Fails<400>, Fails<404>, Fails<410>, Fails<503>)
)]
pub(crate) async fn get(
    call: ScopedPath,
    Reads(reads): Reads,
    InQuery(query): InQuery<wire::WaitTask>,
) -> Result<Out<wire::Task>, Problem> {
    let task = call.task()?;
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0).min(MAX_WAIT_MS));
    if !wait.is_zero() {
        let end = call.app.handle.wait_task(call.scope.clone(), task, WaitCondition::Final, wait);
        if let Some(detail) = call.app.waiting(&call.scope.tenant, wait, end).await? {
            return call.to_wire(task, detail?).await.map(Out::ok);
        }
    }
    let detail = reads.task(call.scope.clone(), task).await?;
    call.to_wire(task, detail).await.map(Out::ok)
}
