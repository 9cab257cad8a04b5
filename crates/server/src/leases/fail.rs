//! POST /v1/leases/{leaseId}/fail: a worker says that its attempt failed. What follows is the coordinator's matter.

use authority::{Category, TaskError};
use wire::ReportAnswer;

use super::call::{ReportFails, answer};
use crate::convert::names::{reported_message, reported_name};
use crate::convert::report_details::Details;
use crate::convert::task_json::category_from_wire;
use crate::convert::{Problem, ReportProblem, ScopedPath, report};
use crate::edge::auth::Caller;
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
    caller: Caller,
    body: Result<In<wire::ReportFailure>, Problem>,
) -> Result<Out<ReportAnswer>, ReportProblem> {
    let (call, In(body)) = (call?, body?);
    let lease = call.lease(&caller, &body.worker_id, body.task_id.as_deref()).await?;
    let details = Details {
        metrics: body.metrics.as_ref(),
        stack_trace: body
            .stack_trace
            .as_deref()
            .or(body.error.as_ref().and_then(|error| error.stack.as_deref())),
        partial_progress: body.partial_progress.as_ref(),
        ..Details::default()
    };
    let report = report::failure(lease, error(&body)?, body.retryable, details)?;
    Ok(answer(call.app.fail(&caller, report).await?)?)
}

/// The error of the report: given as an object, or by `reason`, `category` and `code`. Where both say something the object
/// wins: a report is not lost over its form.
fn error(body: &wire::ReportFailure) -> Result<TaskError, Problem> {
    let (message, category, field, code) = match (&body.error, &body.reason) {
        (None, None) => return Err(Problem::field("reason", "is missing: say what went wrong")),
        (Some(error), reason) => {
            let message = Some(&error.message).filter(|message| !message.is_empty());
            let code = if error.code.is_some() { &error.code } else { &body.code };
            let message = message.or(reason.as_ref()).unwrap_or(&error.message);
            (message, error.category.or(body.category), "error.code", code)
        }
        (None, Some(reason)) => (reason, body.category, "code", &body.code),
    };
    Ok(TaskError {
        category: category.map_or(Category::UserCode, category_from_wire),
        code: reported_name(field, code.as_deref())?,
        message: reported_message(message),
    })
}
