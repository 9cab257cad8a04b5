//! POST /v1/leases/{leaseId}/heartbeat: the worker is still at it. An expired lease is never revived.

use authority::Rejection;
use authority::command::{ExtendAnswer, ExtendLease};
use wire::HeartbeatAnswer;

use crate::convert::{Code, Problem, ScopedPath, report, to_timestamp};
use crate::edge::auth::Caller;
use crate::edge::{Fails, In, Out};

/// Keep a lease alive.
#[utoipa::path(
    post,
    path = "/v1/leases/{leaseId}/heartbeat",
    tag = "Leases",
    params(("leaseId" = String, Path)),
    request_body = wire::Heartbeat,
    responses(
        (status = 200, body = HeartbeatAnswer),
        (status = 410, description = "The lease is over", body = wire::Problem),
        Fails<400>, Fails<403>, Fails<404>, Fails<503>
    )
)]
pub(crate) async fn heartbeat(
    call: ScopedPath,
    caller: Caller,
    In(body): In<wire::Heartbeat>,
) -> Result<Out<HeartbeatAnswer>, Problem> {
    let lease = call.lease(&caller, &body.worker_id, body.task_id.as_deref()).await?;
    let app = &call.app;
    let progress = report::progress(app, "progressPct", body.progress_pct, body.message.as_deref())?;
    match app.handle.heartbeat(ExtendLease { lease: lease.clone() }, progress).await? {
        ExtendAnswer::Extended { expires_at, cancel } => {
            app.note_leases(&caller, std::slice::from_ref(&lease)).await;
            Ok(Out::ok(HeartbeatAnswer {
                expires_at: to_timestamp(expires_at),
                should_cancel: cancel.is_some(),
                cancel_reason: cancel.map(|reason| reason.to_string()),
            }))
        }
        // The lease id is genuine, so a task that is unknown by now was purged, and its lease is as gone as any.
        ExtendAnswer::Lost | ExtendAnswer::Rejected(Rejection::UnknownTask) => {
            Err(Problem::new(Code::LeaseGone, "the lease is over and never comes back: stop"))
        }
        ExtendAnswer::Rejected(why) => Err(why.into()),
    }
}
