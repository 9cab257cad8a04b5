//! POST /v1/leases/{leaseId}/release: a worker gives a lease back; the task waits again at no cost.

use authority::command::{ReleaseAnswer, ReleaseLease};
use authority::event::ReleaseCause;
use axum::extract::State;
use axum::http::StatusCode;
use wire::Released;

use crate::app::App;
use crate::convert::lease_ref::reference;
use crate::convert::problem::Problem;
use crate::convert::scope::InScope;
use crate::convert::task_json::state_to_wire;
use crate::edge::json::{In, InPath, Out};

/// Give a lease back.
#[utoipa::path(
    post,
    path = "/v1/leases/{leaseId}/release",
    tag = "Leases",
    params(("leaseId" = String, Path)),
    request_body = wire::ReleaseLease,
    responses(
        (status = 200, description = "The lease is over", body = Released),
        (status = 400, description = "REJECTED: malformed", body = wire::Problem),
        (status = 403, description = "REJECTED: not this worker's lease", body = wire::Problem),
        (status = 404, description = "REJECTED: unknown task", body = wire::Problem),
        (status = 503, body = wire::Problem)
    )
)]
pub(crate) async fn release(
    State(app): State<App>,
    scope: Result<InScope, Problem>,
    lease_id: Result<InPath<String>, Problem>,
    body: Result<In<wire::ReleaseLease>, Problem>,
) -> Result<Out<Released>, Problem> {
    let release = async {
        let (InScope(scope), InPath(lease_id), In(body)) = (scope?, lease_id?, body?);
        let lease = reference(&app, &scope, &lease_id, &body.worker_id, body.task_id.as_deref())?;
        match app.handle().release(ReleaseLease { lease, cause: ReleaseCause::Worker }).await? {
            ReleaseAnswer::Over(after) => Ok(Out(StatusCode::OK, Released { state: state_to_wire(after) })),
            ReleaseAnswer::Rejected(why) => Err(why.into()),
        }
    };
    release.await.map_err(Problem::on_report)
}
