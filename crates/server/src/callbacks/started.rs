//! POST /v1/tasks/{taskId}/started: a worker begins. The first one binds the attempt to itself.

use authority::Outcome;
use authority::command::{ExtendLease, StartAnswer, StartAttempt, Verdict};
use wire::{CallbackProblem, StartAcknowledged, TaskStarted};

use super::caller::{CallbackFails, Caller};
use super::refusal::{Refusal, dead};
use super::{attempt, completed};
use crate::convert::names::name;
use crate::convert::report_details::Details;
use crate::convert::{Problem, report, to_timestamp};
use crate::edge::{In, Out};

/// Say that an attempt began.
#[utoipa::path(
    post,
    path = "/v1/tasks/{taskId}/started",
    tag = "Callbacks",
    params(("taskId" = String, Path), ("authorization" = String, Header, description = "Bearer {taskToken}")),
    request_body = TaskStarted,
    responses(
        (status = 200, body = StartAcknowledged),
        (status = 409, description = "`task_already_terminal`, `attempt_mismatch` or `attempt_already_started`: do not begin",
            body = CallbackProblem),
        CallbackFails
    )
)]
pub(crate) async fn started(
    caller: Caller,
    body: Result<In<TaskStarted>, Problem>,
) -> Result<Out<StartAcknowledged>, Refusal> {
    let In(body) = body?;
    caller.measure_clock(body.started_at);
    let started_by = name("workerId", &body.worker_id)?;
    let began = attempt::admit(&caller, body.attempt, &started_by).await?.began;
    match caller.app.handle.start(StartAttempt { lease: caller.lease.clone(), started_by }).await? {
        // Who began before the cancel is told of it by the heartbeat, and has its grace.
        StartAnswer::Cancelled(_) if !began => Err(cancelled(&caller).await?),
        StartAnswer::Started | StartAnswer::Cancelled(_) => {
            // It is a sign of life as well: from here on the next one is due within the heartbeat timeout.
            caller.app.handle.heartbeat(ExtendLease { lease: caller.lease.clone() }, None).await?;
            let server_time = to_timestamp(caller.app.handle.now());
            Ok(Out::ok(StartAcknowledged { acknowledged: true, server_time }))
        }
        StartAnswer::AlreadyStarted(_) => Err(Refusal::attempt_already_started()),
        StartAnswer::Lost => Err(attempt::lost(&caller).await?),
        StartAnswer::Rejected(why) => Err(why.into()),
    }
}

/// Whoever is told that the task was cancelled must not begin, so nobody else will report its end: the refusal is the
/// attempt's report, and what it says is true.
async fn cancelled(caller: &Caller) -> Result<Refusal, Refusal> {
    let error = completed::cancelled(None);
    let verdict = caller
        .app
        .handle
        .fail(report::failure(caller.lease.clone(), error, None, Details::default())?)
        .await?;
    match verdict {
        Verdict::Committed(Outcome::Dead(reason)) => {
            Ok(Refusal::already_terminal(dead(reason), "Task was cancelled before worker started"))
        }
        Verdict::Rejected(why) => Err(why.into()),
        Verdict::Committed(_) | Verdict::Cancelled => attempt::lost(caller).await,
    }
}
