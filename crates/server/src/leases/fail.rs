//! POST /v1/leases/{leaseId}/fail: a worker says that its attempt failed. What follows is the coordinator's matter.

use authority::{Category, TaskError};
use wire::ReportAnswer;

use super::call::{ReportFails, answer};
use crate::convert::names::{reported_message, reported_name};
use crate::convert::task_json::category_from_wire;
use crate::convert::{Problem, ReportProblem, ScopedPath, report};
use crate::edge::{In, Out};

/// Report that an attempt failed.
#[utoipa::path(
    post,
    path = "/v1/leases/{leaseId}/fail",
    tag = "Leases",
    params(("leaseId" = String, Path)),
    request_body = wire::ReportFailure,
    responses(
        (status = 200, description = "COMMITTED, now or earlier", body = ReportAnswer),
        (status = 409, description = "CANCELLED: authority lost; or REJECTED: a conflicting report", body = wire::Problem),
        ReportFails
    )
)]
pub(crate) async fn fail(
    call: Result<ScopedPath, Problem>,
    body: Result<In<wire::ReportFailure>, Problem>,
) -> Result<Out<ReportAnswer>, ReportProblem> {
    let (call, In(body)) = (call?, body?);
    let lease = call.lease(&body.worker_id, body.task_id.as_deref())?;
    let error = TaskError {
        category: body.category.map_or(Category::UserCode, category_from_wire),
        code: reported_name("code", body.code.as_deref())?,
        message: reported_message(&body.reason),
    };
    let report = report::failure(lease, error, body.retryable)?;
    Ok(answer(call.app.handle.fail(report).await?)?)
}
