//! GET /healthz and GET /readyz: liveness and readiness.

use std::time::Duration;

use axum::extract::State;
use coordinator::Unavailable;
use coordinator::engine::DiskSpace;
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::app::App;
use crate::convert::{Code, Problem};
use crate::edge::Out;

/// How long the coordinator may take to say where it is before it counts as not ready.
const MAX_READY_WAIT: Duration = Duration::from_secs(2);

#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    pub status: &'static str,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Readiness {
    /// `ready`, or `disk_full` when what is running may finish and nothing new begins.
    pub status: &'static str,
    /// The place of the newest record in the ledger.
    pub position: u64,
    pub tasks: usize,
    pub state_bytes: usize,
    pub max_state_bytes: usize,
    /// How many polls wait for work.
    pub polls: usize,
}

/// The process lives.
#[utoipa::path(get, path = "/healthz", tag = "Health", responses((status = 200, body = Health)))]
pub(crate) async fn live() -> Out<Health> {
    Out::ok(Health { status: "ok" })
}

/// The coordinator answers.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "Health",
    responses((status = 200, body = Readiness), (status = 503, body = wire::Problem))
)]
pub(crate) async fn ready(State(app): State<App>) -> Result<Out<Readiness>, Problem> {
    if app.is_leaving() {
        return Err(Problem::new(Code::NotServing, "the server is about to stop"));
    }
    let status = timeout(MAX_READY_WAIT, app.handle.status()).await;
    let status = status.map_err(|_| Problem::new(Code::NotServing, "the coordinator does not answer"))??;
    let status_name = match status.disk_space {
        DiskSpace::Plenty => "ready",
        DiskSpace::FinishOnly => "disk_full",
        DiskSpace::Nothing => return Err(Unavailable::NoSpace.into()),
    };
    let ready = Readiness {
        status: status_name,
        position: status.position.0,
        tasks: status.tasks,
        state_bytes: status.state_bytes,
        max_state_bytes: status.max_state_bytes,
        polls: status.polls,
    };
    Ok(Out::ok(ready))
}
