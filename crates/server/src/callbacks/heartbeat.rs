//! POST /v1/tasks/{taskId}/heartbeat: the worker is still at it, and learns whether it should stop. An expired lease is
//! never revived.

use authority::Time;
use authority::command::{ExtendAnswer, ExtendLease};
use coordinator::TaskDetail;
use wire::{CallbackProblem, HeartbeatAcknowledged, TaskHeartbeat};

use super::attempt;
use super::caller::{CallbackFails, Caller};
use super::refusal::Refusal;
use crate::convert::names::name;
use crate::convert::task_token::Issued;
use crate::convert::{Problem, report, to_timestamp};
use crate::edge::{In, Out};

/// Keep an attempt alive.
#[utoipa::path(
    post,
    path = "/v1/tasks/{taskId}/heartbeat",
    tag = "Callbacks",
    params(("taskId" = String, Path), ("authorization" = String, Header, description = "Bearer {taskToken}")),
    request_body = TaskHeartbeat,
    responses(
        (status = 200, body = HeartbeatAcknowledged),
        (status = 409, description = "`attempt_mismatch` or `attempt_already_started`", body = CallbackProblem),
        (status = 410, description = "`task_expired`: stop at once", body = CallbackProblem),
        CallbackFails
    )
)]
pub(crate) async fn heartbeat(
    caller: Caller,
    body: Result<In<TaskHeartbeat>, Problem>,
) -> Result<Out<HeartbeatAcknowledged>, Refusal> {
    let In(body) = body?;
    caller.measure_clock(body.heartbeat_at);
    let worker = name("workerId", &body.worker_id)?;
    let progress = report::progress(&caller.app, "progressPct", body.progress_pct, body.message.as_deref())?;
    let detail = attempt::admit(&caller, body.attempt, &worker).await?.detail;
    match caller.app.handle.heartbeat(ExtendLease { lease: caller.lease.clone() }, progress).await? {
        ExtendAnswer::Extended { cancel, .. } => {
            let now = caller.app.handle.now();
            let renewed = renewed(&caller, &detail, now).await?;
            let answer = HeartbeatAcknowledged {
                acknowledged: true,
                should_cancel: cancel.is_some(),
                cancel_reason: cancel.map(|reason| reason.to_string()),
                server_time: to_timestamp(now),
                token_expires_at: renewed.as_ref().map(|issued| to_timestamp(issued.expires_at)),
                task_token: renewed.map(|issued| issued.token),
            };
            Ok(Out::ok(answer))
        }
        ExtendAnswer::Lost => Err(attempt::gone(&caller).await?),
        ExtendAnswer::Rejected(why) => Err(why.into()),
    }
}

/// Another token for the same attempt, when the task may outlive the one at hand or its key was replaced.
async fn renewed(caller: &Caller, detail: &TaskDetail, now: Time) -> Result<Option<Issued>, Refusal> {
    if caller.newest_key && !caller.claims.is_ageing(now) {
        return Ok(None);
    }
    let settings = detail.view.settings;
    let times_ms = (settings.cancel_grace_ms, settings.heartbeat_interval_ms);
    let deadline = detail.view.task.deadline();
    let key_ring = caller.app.task_tokens.key_ring(&caller.app.handle).await?;
    let issued = key_ring.issue(&caller.lease, &caller.claims.run_id, deadline, times_ms, now);
    let outlives = issued.expires_at.0 / 1_000 > caller.claims.exp;
    Ok((outlives || !caller.newest_key).then_some(issued))
}
