//! POST /internal/worker/complete: a worker says that it finished its job.

use wire::{ClaimProblem, CompleteJob, JobCompleted};

use super::refusal::Refusal;
use super::token;
use crate::convert::report_details::Details;
use crate::convert::{Problem, Scoped, report};
use crate::edge::auth::Caller;
use crate::edge::{Fails, In, Out};

/// Report that a job is done.
#[utoipa::path(
    post,
    path = "/internal/worker/complete",
    tag = "Claims",
    request_body = CompleteJob,
    responses(
        (status = 200, description = "Accepted, now or earlier", body = JobCompleted),
        (status = 403, description = "Not this worker's lease, job or attempt", body = ClaimProblem),
        (status = 404, description = "Unknown job", body = ClaimProblem),
        (status = 409, description = "The lease is over (`ack` is true); or a conflicting report", body = ClaimProblem),
        (status = 413, description = "The result is too large", body = ClaimProblem),
        (status = 424, description = "`outputs_missing`: upload the outputs of the execution and report again", body = ClaimProblem),
        Fails<400, ClaimProblem>, Fails<503, ClaimProblem>
    )
)]
pub(crate) async fn complete(
    call: Result<Scoped, Problem>,
    caller: Caller,
    body: Result<In<CompleteJob>, Problem>,
) -> Result<Out<JobCompleted>, Refusal<true>> {
    let (call, In(body)) = (call?, body?);
    let lease = token::lease(&call, &caller, &body.worker_id, &body.job_id, &body.lease_token).await?;
    token::check_report(&lease, &body.attempt_id, body.stream.as_deref(), body.message_id.as_deref())?;
    let report = report::completion(lease, "result", body.result, Details::default())?;
    report::committed(call.app.complete(&caller, report).await?)?;
    Ok(Out::ok(JobCompleted { ok: true, ack: true }))
}
