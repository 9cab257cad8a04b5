//! POST /internal/worker/heartbeat: the worker is still at it. An expired lease is never revived.

use authority::command::{ExtendAnswer, ExtendLease};
use wire::{ClaimProblem, HeartbeatJob, JobHeartbeat, Verdict};

use super::refusal::Refusal;
use super::token;
use crate::convert::{Code, Problem, Scoped, to_timestamp};
use crate::edge::auth::Caller;
use crate::edge::{Fails, In, Out};

/// Keep a lease alive.
#[utoipa::path(
    post,
    path = "/internal/worker/heartbeat",
    tag = "Claims",
    request_body = HeartbeatJob,
    responses(
        (status = 200, body = JobHeartbeat),
        (status = 403, description = "Not this worker's lease", body = ClaimProblem),
        (status = 404, description = "Unknown job", body = ClaimProblem),
        (status = 409, description = "The lease is over: stop", body = ClaimProblem),
        Fails<400, ClaimProblem>, Fails<503, ClaimProblem>
    )
)]
pub(crate) async fn heartbeat(
    call: Result<Scoped, Problem>,
    caller: Caller,
    body: Result<In<HeartbeatJob>, Problem>,
) -> Result<Out<JobHeartbeat>, Refusal> {
    let (call, In(body)) = (call?, body?);
    let lease = token::lease(&call, &caller, &body.worker_id, &body.job_id, &body.lease_token).await?;
    match call.app.handle.heartbeat(ExtendLease { lease: lease.clone() }, None).await? {
        ExtendAnswer::Extended { expires_at, cancel } => {
            call.app.note_leases(&caller, std::slice::from_ref(&lease)).await;
            Ok(Out::ok(JobHeartbeat {
                ok: true,
                lease_expires_at: to_timestamp(expires_at),
                should_cancel: cancel.is_some(),
                cancel_reason: cancel.map(|reason| reason.to_string()),
            }))
        }
        // The message of a lease that is over was superseded or is finished.
        ExtendAnswer::Lost => {
            let lost = Problem::new(Code::LeaseLost, "the lease is over and never comes back: stop");
            Err(Problem { verdict: Some(Verdict::Cancelled), ..lost }.into())
        }
        ExtendAnswer::Rejected(why) => Err(Problem { verdict: None, ..why.into() }.into()),
    }
}
