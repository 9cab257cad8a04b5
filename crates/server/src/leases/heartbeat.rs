//! POST /v1/leases/{leaseId}/heartbeat: the worker is still at it. An expired lease is never revived.

use authority::Rejection;
use authority::command::{ExtendAnswer, ExtendLease};
use axum::extract::State;
use axum::http::StatusCode;
use coordinator::Progress;
use wire::HeartbeatAnswer;

use crate::app::App;
use crate::convert::lease_ref::reference;
use crate::convert::names::{optional_within, progress_message};
use crate::convert::problem::{Code, Problem};
use crate::convert::scope::InScope;
use crate::convert::time::to_timestamp;
use crate::edge::json::{In, InPath, Out};

/// Keep a lease alive.
#[utoipa::path(
    post,
    path = "/v1/leases/{leaseId}/heartbeat",
    tag = "Leases",
    params(("leaseId" = String, Path)),
    request_body = wire::Heartbeat,
    responses(
        (status = 200, body = HeartbeatAnswer),
        (status = 400, body = wire::Problem),
        (status = 403, body = wire::Problem),
        (status = 404, body = wire::Problem),
        (status = 410, description = "The lease is over", body = wire::Problem),
        (status = 503, body = wire::Problem)
    )
)]
pub(crate) async fn heartbeat(
    State(app): State<App>,
    InScope(scope): InScope,
    InPath(lease_id): InPath<String>,
    In(body): In<wire::Heartbeat>,
) -> Result<Out<HeartbeatAnswer>, Problem> {
    let lease = reference(&app, &scope, &lease_id, &body.worker_id, body.task_id.as_deref())?;
    let percent = optional_within("progressPct", body.progress_pct, 0.0..=100.0)?;
    let text = body.message.as_deref().map(progress_message);
    let said = percent.is_some() || text.is_some();
    let progress = said.then(|| Progress { percent, message: text, at: app.handle().now() });
    match app.handle().heartbeat(ExtendLease { lease }, progress).await? {
        ExtendAnswer::Extended { expires_at, cancel } => {
            let answer = HeartbeatAnswer {
                expires_at: to_timestamp(expires_at),
                should_cancel: cancel.is_some(),
                cancel_reason: cancel.map(|reason| reason.to_string()),
            };
            Ok(Out(StatusCode::OK, answer))
        }
        // The lease id is genuine, so a task that is unknown by now was purged, and its lease is as gone as any.
        ExtendAnswer::Lost | ExtendAnswer::Rejected(Rejection::UnknownTask) => {
            Err(Problem::new(Code::LeaseGone, "the lease is over and never comes back: stop"))
        }
        ExtendAnswer::Rejected(why) => Err(why.into()),
    }
}
