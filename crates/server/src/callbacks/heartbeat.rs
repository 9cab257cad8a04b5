//! POST /v1/tasks/{taskId}/heartbeat: the worker is still at it, and learns whether it should stop. An expired lease is
//! never revived.

use authority::Time;
use authority::command::{ExtendAnswer, ExtendLease};
use axum::extract::State;
use axum::http::StatusCode;
use coordinator::{Progress, TaskDetail};
use wire::{HeartbeatAcknowledged, TaskHeartbeat};

use super::attempt;
use super::caller::Caller;
use super::refusal::Refusal;
use crate::app::App;
use crate::convert::names::{name, optional_within, progress_message};
use crate::convert::problem::Problem;
use crate::convert::task_token::Issued;
use crate::convert::time::to_timestamp;
use crate::edge::json::{In, Out};

/// Keep an attempt alive.
#[utoipa::path(
    post,
    path = "/v1/tasks/{taskId}/heartbeat",
    tag = "Callbacks",
    params(("taskId" = String, Path), ("authorization" = String, Header, description = "Bearer {taskToken}")),
    request_body = TaskHeartbeat,
    responses(
        (status = 200, body = HeartbeatAcknowledged),
        (status = 400, description = "`invalid_argument`", body = wire::CallbackProblem),
        (status = 401, description = "`invalid_token`", body = wire::CallbackProblem),
        (status = 404, description = "`task_not_found`", body = wire::CallbackProblem),
        (status = 409, description = "`attempt_mismatch` or `attempt_already_started`", body = wire::CallbackProblem),
        (status = 410, description = "`task_expired`: stop at once", body = wire::CallbackProblem),
        (status = 503, body = wire::CallbackProblem)
    )
)]
pub(crate) async fn heartbeat(
    State(app): State<App>,
    caller: Caller,
    body: Result<In<TaskHeartbeat>, Problem>,
) -> Result<Out<HeartbeatAcknowledged>, Refusal> {
    let In(body) = body?;
    let worker = name("workerId", &body.worker_id)?;
    let percent = optional_within("progressPct", body.progress_pct, 0.0..=100.0)?;
    let text = body.message.as_deref().map(progress_message);
    let said = percent.is_some() || text.is_some();
    let detail = attempt::admit(&app, &caller, body.attempt, &worker).await?.detail;
    let progress = said.then(|| Progress { percent, message: text, at: app.handle().now() });
    match app.handle().heartbeat(ExtendLease { lease: caller.lease.clone() }, progress).await? {
        ExtendAnswer::Extended { cancel, .. } => {
            let now = app.handle().now();
            let renewed = renewed(&app, &caller, &detail, now).await?;
            let answer = HeartbeatAcknowledged {
                acknowledged: true,
                should_cancel: cancel.is_some(),
                cancel_reason: cancel.map(|reason| reason.to_string()),
                server_time: to_timestamp(now),
                token_expires_at: renewed.as_ref().map(|issued| to_timestamp(issued.expires_at)),
                task_token: renewed.map(|issued| issued.token),
            };
            Ok(Out(StatusCode::OK, answer))
        }
        ExtendAnswer::Lost => Err(attempt::gone(&app, &caller).await?),
        ExtendAnswer::Rejected(why) => Err(why.into()),
    }
}

/// Another token for the same attempt, when the task may outlive the one at hand or its key was replaced.
async fn renewed(
    app: &App,
    caller: &Caller,
    detail: &TaskDetail,
    now: Time,
) -> Result<Option<Issued>, Refusal> {
    if caller.newest_key && !caller.claims.is_ageing(now) {
        return Ok(None);
    }
    let grace_ms = detail.view.settings.cancel_grace_ms;
    let deadline = detail.view.task.deadline();
    let key_ring = app.task_tokens().key_ring(app.handle()).await?;
    let issued = key_ring.issue(&caller.lease, &caller.claims.run_id, deadline, grace_ms, now);
    let outlives = issued.expires_at.0 / 1_000 > caller.claims.exp;
    Ok((outlives || !caller.newest_key).then_some(issued))
}
