//! POST /v1/leases/{leaseId}/complete: a worker says that it finished its task.

use wire::ReportAnswer;

use super::call::{ReportFails, answer};
use crate::convert::report_details::Details;
use crate::convert::{Problem, ReportProblem, ScopedPath, report};
use crate::edge::auth::Caller;
use crate::edge::{In, Out};

/// Report that an attempt is done.
#[utoipa::path(
    post,
    path = "/v1/leases/{leaseId}/complete",
    tag = "Leases",
    params(("leaseId" = String, Path)),
    request_body = wire::ReportCompletion,
    responses(
        (status = 200, description = "COMMITTED, now or earlier", body = ReportAnswer),
        (status = 409, description = "CANCELLED: authority lost; or REJECTED: a conflicting report", body = wire::Problem),
        (status = 413, description = "REJECTED: the result is too large", body = wire::Problem),
        (status = 424, description = "`outputs_missing`, without a verdict: upload the outputs of the execution and report again", body = wire::Problem),
        ReportFails
    )
)]
pub(crate) async fn complete(
    call: Result<ScopedPath, Problem>,
    caller: Caller,
    body: Result<In<wire::ReportCompletion>, Problem>,
) -> Result<Out<ReportAnswer>, ReportProblem> {
    let (call, In(body)) = (call?, body?);
    let lease = call.lease(&caller, &body.worker_id, body.task_id.as_deref()).await?;
    let details = Details { metrics: body.metrics.as_ref(), ..Details::default() };
    let report = report::completion(lease, "result", body.result, details)?;
    Ok(answer(call.app.complete(&caller, report).await?)?)
}
