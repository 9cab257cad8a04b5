//! POST /v1/tasks/{taskId}/cancel: a waiting task ends at once, a leased one is asked to stop. Asking again is
//! harmless.

use authority::command::{CancelTask, EndAnswer};

use crate::convert::names::message;
use crate::convert::{Problem, ScopedPath};
use crate::edge::auth::Caller;
use crate::edge::{Fails, InOrDefault, Out};

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
        Fails<400>, Fails<404>, Fails<410>, Fails<503>
    )
)]
pub(crate) async fn cancel(
    call: ScopedPath,
    caller: Caller,
    InOrDefault(body): InOrDefault<wire::CancelTask>,
) -> Result<Out<wire::Task>, Problem> {
    let task = call.task()?;
    let reason = message("reason", body.reason.as_deref().unwrap_or(DEFAULT_REASON))?;
    caller.check_task(&call.app.handle, &call.scope, task).await?;
    let cancel = CancelTask { scope: call.scope.clone(), task, reason, by: caller.actor() };
    match call.app.handle.cancel(cancel).await? {
        EndAnswer::UnknownTask => Err(call.missing(task).await),
        EndAnswer::Accepted => call.read(task).await.map(Out::ok),
    }
}
