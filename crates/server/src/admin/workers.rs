//! GET /v1/workers: the workers that were seen since the coordinator started.

use authority::Role;
use coordinator::{Activity, Registered, WorkerView};
use wire::{Worker, WorkerList, WorkerRegistration, WorkerState};

use crate::convert::{Problem, Scoped, to_timestamp};
use crate::edge::Out;
use crate::edge::auth::Caller;

/// List the workers.
#[utoipa::path(get, path = "/v1/workers", tag = "Workers", responses((status = 200, body = WorkerList)))]
pub(crate) async fn list(Scoped { app, scope }: Scoped, caller: Caller) -> Result<Out<WorkerList>, Problem> {
    let workers = app.handle.workers(scope).await?;
    let mut workers: Vec<_> = workers.iter().map(to_wire).collect();
    if !may_see_sessions(&caller) {
        for registration in workers.iter_mut().filter_map(|worker| worker.registration.as_mut()) {
            registration.session_id = None;
        }
    }
    Ok(Out::ok(WorkerList { workers }))
}

/// Workers prove by the id of their session that they are the same, so it is not for everyone who may look.
fn may_see_sessions(caller: &Caller) -> bool {
    caller.identity().is_none_or(|identity| identity.has(Role::Operator) || identity.has(Role::Admin))
}

pub(super) fn to_wire(view: &WorkerView) -> Worker {
    Worker {
        worker_id: view.worker.to_string(),
        last_heartbeat_at: to_timestamp(view.last_heartbeat),
        active_leases: view.active_leases,
        drained: view.is_drained,
        stopping: view.registered.as_ref().is_some_and(|registered| registered.is_stopping),
        registration: view.registered.as_ref().map(registration),
    }
}

fn registration(registered: &Registered) -> WorkerRegistration {
    let Registered { registration, status, .. } = registered;
    let pairs = registration.properties.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    WorkerRegistration {
        registered_at: to_timestamp(registration.registered_at),
        session_id: registration.session.as_ref().map(|session| session.to_string()),
        properties: pairs.collect(),
        max_concurrent_executions: registration.max_concurrent_executions,
        cpu_cores: registration.cpu_cores,
        memory_bytes: registration.memory_bytes,
        disk_bytes: registration.disk_bytes,
        state: match status.activity {
            Activity::Idle => WorkerState::Idle,
            Activity::Busy => WorkerState::Busy,
            Activity::Draining => WorkerState::Draining,
        },
        active_tasks: status.active_tasks,
        total_completed: status.total_completed,
        total_failed: status.total_failed,
    }
}
