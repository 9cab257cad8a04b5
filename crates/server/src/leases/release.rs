//! POST /v1/leases/{leaseId}/release: a worker gives a lease back; the task waits again at no cost.

use authority::command::{ReleaseAnswer, ReleaseLease};
use authority::event::ReleaseCause;
use wire::Released;

use super::call::ReportFails;
use crate::convert::task_json::state_to_wire;
use crate::convert::{Problem, ReportProblem, ScopedPath};
use crate::edge::auth::Caller;
use crate::edge::{In, Out};

/// Give a lease back.
#[utoipa::path(
    post,
    path = "/v1/leases/{leaseId}/release",
    tag = "Leases",
    params(("leaseId" = String, Path)),
    request_body = wire::ReleaseLease,
    responses((status = 200, description = "The lease is over", body = Released), ReportFails)
)]
pub(crate) async fn release(
    call: Result<ScopedPath, Problem>,
    caller: Caller,
    body: Result<In<wire::ReleaseLease>, Problem>,
) -> Result<Out<Released>, ReportProblem> {
    let (call, In(body)) = (call?, body?);
    let lease = call.lease(&caller, &body.worker_id, body.task_id.as_deref()).await?;
    match call.app.handle.release(ReleaseLease { lease, cause: ReleaseCause::Worker }).await? {
        ReleaseAnswer::Over(after) => Ok(Out::ok(Released { state: state_to_wire(after) })),
        ReleaseAnswer::Rejected(why) => Err(why.into()),
    }
}
