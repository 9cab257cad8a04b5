//! POST /internal/worker/heartbeat: the worker is still at it. An expired lease is never revived.

use authority::command::{ExtendAnswer, ExtendLease};
use axum::extract::State;
use axum::http::StatusCode;
use wire::{HeartbeatJob, JobHeartbeat};

use super::refusal::Refusal;
use super::token;
use crate::app::App;
use crate::convert::problem::{Code, Problem};
use crate::convert::scope::InScope;
use crate::convert::time::to_timestamp;
use crate::edge::json::{In, Out};

/// Keep a lease alive.
#[utoipa::path(
    post,
    path = "/internal/worker/heartbeat",
    tag = "Claims",
    request_body = HeartbeatJob,
    responses(
        (status = 200, body = JobHeartbeat),
        (status = 400, body = wire::ClaimProblem),
        (status = 403, description = "Not this worker's lease", body = wire::ClaimProblem),
        (status = 404, description = "Unknown job", body = wire::ClaimProblem),
        (status = 409, description = "The lease is over: stop", body = wire::ClaimProblem),
        (status = 503, body = wire::ClaimProblem)
    )
)]
pub(crate) async fn heartbeat(
    State(app): State<App>,
    scope: Result<InScope, Problem>,
    body: Result<In<HeartbeatJob>, Problem>,
) -> Result<Out<JobHeartbeat>, Refusal> {
    let (InScope(scope), In(body)) = (scope?, body?);
    let lease = token::lease(&app, &scope, &body.worker_id, &body.job_id, &body.lease_token)?;
    match app.handle().heartbeat(ExtendLease { lease }, None).await? {
        ExtendAnswer::Extended { expires_at, cancel } => {
            let answer = JobHeartbeat {
                ok: true,
                lease_expires_at: to_timestamp(expires_at),
                should_cancel: cancel.is_some(),
                cancel_reason: cancel.map(|reason| reason.to_string()),
            };
            Ok(Out(StatusCode::OK, answer))
        }
        ExtendAnswer::Lost => Err(over()),
        ExtendAnswer::Rejected(why) => Err(Problem { verdict: None, ..why.into() }.into()),
    }
}

/// The message of a lease that is over was superseded or is finished.
fn over() -> Refusal {
    let verdict = Some(wire::Verdict::Cancelled);
    let lost = Problem::new(Code::LeaseLost, "the lease is over and never comes back: stop");
    Problem { verdict, ..lost }.into()
}
