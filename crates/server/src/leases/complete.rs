//! POST /v1/leases/{leaseId}/complete: a worker says that it finished its task.

use authority::Scope;
use authority::command::ReportCompletion;
use axum::extract::State;
use wire::ReportAnswer;

use super::verdict::answer;
use crate::app::App;
use crate::convert::lease_ref::reference;
use crate::convert::problem::Problem;
use crate::convert::report;
use crate::convert::scope::InScope;
use crate::edge::json::{In, InPath, Out};

/// Report that an attempt is done.
#[utoipa::path(
    post,
    path = "/v1/leases/{leaseId}/complete",
    tag = "Leases",
    params(("leaseId" = String, Path)),
    request_body = wire::ReportCompletion,
    responses(
        (status = 200, description = "COMMITTED, now or earlier", body = ReportAnswer),
        (status = 400, description = "REJECTED: malformed", body = wire::Problem),
        (status = 403, description = "REJECTED: not this worker's lease", body = wire::Problem),
        (status = 404, description = "REJECTED: unknown task", body = wire::Problem),
        (status = 409, description = "CANCELLED: authority lost; or REJECTED: a conflicting report", body = wire::Problem),
        (status = 413, description = "REJECTED: the result is too large", body = wire::Problem),
        (status = 503, body = wire::Problem)
    )
)]
pub(crate) async fn complete(
    State(app): State<App>,
    scope: Result<InScope, Problem>,
    lease_id: Result<InPath<String>, Problem>,
    body: Result<In<wire::ReportCompletion>, Problem>,
) -> Result<Out<ReportAnswer>, Problem> {
    let report = async {
        let (InScope(scope), InPath(lease_id), In(body)) = (scope?, lease_id?, body?);
        let command = command(&app, &scope, &lease_id, body)?;
        answer(app.handle().complete(command).await?)
    };
    report.await.map_err(Problem::on_report)
}

fn command(
    app: &App,
    scope: &Scope,
    lease_id: &str,
    body: wire::ReportCompletion,
) -> Result<ReportCompletion, Problem> {
    let lease = reference(app, scope, lease_id, &body.worker_id, body.task_id.as_deref())?;
    report::completion(lease, "result", body.result)
}
