//! POST /v1/leases/{leaseId}/fail: a worker says that its attempt failed. What follows is the coordinator's matter.

use authority::command::ReportFailure;
use authority::{Category, Scope, TaskError};
use axum::extract::State;
use wire::ReportAnswer;

use super::verdict::answer;
use crate::app::App;
use crate::convert::lease_ref::reference;
use crate::convert::names::{reported_message, reported_name};
use crate::convert::problem::Problem;
use crate::convert::report;
use crate::convert::scope::InScope;
use crate::convert::task_json::category_from_wire;
use crate::edge::json::{In, InPath, Out};

/// Report that an attempt failed.
#[utoipa::path(
    post,
    path = "/v1/leases/{leaseId}/fail",
    tag = "Leases",
    params(("leaseId" = String, Path)),
    request_body = wire::ReportFailure,
    responses(
        (status = 200, description = "COMMITTED, now or earlier", body = ReportAnswer),
        (status = 400, description = "REJECTED: malformed", body = wire::Problem),
        (status = 403, description = "REJECTED: not this worker's lease", body = wire::Problem),
        (status = 404, description = "REJECTED: unknown task", body = wire::Problem),
        (status = 409, description = "CANCELLED: authority lost; or REJECTED: a conflicting report", body = wire::Problem),
        (status = 503, body = wire::Problem)
    )
)]
pub(crate) async fn fail(
    State(app): State<App>,
    scope: Result<InScope, Problem>,
    lease_id: Result<InPath<String>, Problem>,
    body: Result<In<wire::ReportFailure>, Problem>,
) -> Result<Out<ReportAnswer>, Problem> {
    let report = async {
        let (InScope(scope), InPath(lease_id), In(body)) = (scope?, lease_id?, body?);
        let command = command(&app, &scope, &lease_id, &body)?;
        answer(app.handle().fail(command).await?)
    };
    report.await.map_err(Problem::on_report)
}

fn command(
    app: &App,
    scope: &Scope,
    lease_id: &str,
    body: &wire::ReportFailure,
) -> Result<ReportFailure, Problem> {
    let lease = reference(app, scope, lease_id, &body.worker_id, body.task_id.as_deref())?;
    let error = TaskError {
        category: body.category.map_or(Category::UserCode, category_from_wire),
        code: reported_name("code", body.code.as_deref())?,
        message: reported_message(&body.reason),
    };
    report::failure(lease, error, body.retryable)
}
