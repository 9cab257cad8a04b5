//! POST /internal/worker/complete: a worker says that it finished its job.

use axum::extract::State;
use axum::http::StatusCode;
use wire::{CompleteJob, JobCompleted};

use super::refusal::Refusal;
use super::token;
use crate::app::App;
use crate::convert::names::reported_name;
use crate::convert::problem::Problem;
use crate::convert::report;
use crate::convert::scope::InScope;
use crate::edge::json::{In, Out};

/// Report that a job is done.
#[utoipa::path(
    post,
    path = "/internal/worker/complete",
    tag = "Claims",
    request_body = CompleteJob,
    responses(
        (status = 200, description = "Accepted, now or earlier", body = JobCompleted),
        (status = 400, body = wire::ClaimProblem),
        (status = 403, description = "Not this worker's lease, job or attempt", body = wire::ClaimProblem),
        (status = 404, description = "Unknown job", body = wire::ClaimProblem),
        (status = 409, description = "The lease is over (`ack` is true); or a conflicting report", body = wire::ClaimProblem),
        (status = 413, description = "The result is too large", body = wire::ClaimProblem),
        (status = 503, body = wire::ClaimProblem)
    )
)]
pub(crate) async fn complete(
    State(app): State<App>,
    scope: Result<InScope, Problem>,
    body: Result<In<CompleteJob>, Problem>,
) -> Result<Out<JobCompleted>, Refusal> {
    let report = async {
        let (InScope(scope), In(body)) = (scope?, body?);
        let lease = token::lease(&app, &scope, &body.worker_id, &body.job_id, &body.lease_token)?;
        let lease = token::attempt(lease, &body.attempt_id)?;
        reported_name("stream", body.stream.as_deref())?;
        reported_name("message_id", body.message_id.as_deref())?;
        report::committed(app.handle().complete(report::completion(lease, "result", body.result)?).await?)?;
        Ok(Out(StatusCode::OK, JobCompleted { ok: true, ack: true }))
    };
    report.await.map_err(Refusal::on_report)
}
