//! GET /v1/workers: who was heard of since the coordinator started.

use axum::extract::State;
use axum::http::StatusCode;
use wire::{Worker, WorkerList};

use crate::app::App;
use crate::json::Out;
use crate::problem::Problem;
use crate::scope::InScope;
use crate::time::shown;

/// List the workers.
#[utoipa::path(get, path = "/v1/workers", tag = "Workers", responses((status = 200, body = WorkerList)))]
pub async fn list(State(app): State<App>, InScope(scope): InScope) -> Result<Out<WorkerList>, Problem> {
    let workers = app.handle().workers(scope).await?;
    let workers = workers
        .into_iter()
        .map(|view| Worker {
            worker_id: view.worker.to_string(),
            last_heartbeat_at: shown(view.last_heartbeat),
            active_leases: view.active_leases,
        })
        .collect();
    Ok(Out(StatusCode::OK, WorkerList { workers }))
}
