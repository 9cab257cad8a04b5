//! RegisterWorker and UnregisterWorker. Registration is soft: it steers who is offered work, and it shows who is still there.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use authority::command::{ReleaseLease, StartSession};
use authority::event::ReleaseCause;
use authority::{Command, Contract, HeldLease, LeaseRef, Properties, Scope};
use coordinator::{BatchItem, Registration};
use tonic::Status;
use wire::grpc::{
    RegisterWorkerRequest, RegisterWorkerResponse, UnregisterWorkerRequest, UnregisterWorkerResponse,
};

use super::heartbeat;
use super::ownership::check_replacement;
use super::session::Session;
use super::values::{optional_name, span};
use crate::app::App;
use crate::convert::Problem;
use crate::convert::names::{self, name};
use crate::edge::auth::Caller;

/// Makes a worker known, and gives back what its earlier sessions held. In this order, so that those are leased nothing
/// once it was given back, and one registration of a worker after the other, so that the last one keeps what it gets (W11).
pub(super) async fn register(
    app: &App,
    scope: &Scope,
    caller: &Caller,
    request: &RegisterWorkerRequest,
    peer: Option<IpAddr>,
    contract: Contract,
) -> Result<RegisterWorkerResponse, Status> {
    let worker = name("worker_id", &request.worker_id)?;
    caller.check_worker(&worker)?;
    let owner = caller.identity().map(|identity| identity.id().clone());
    let registration = Registration { address: peer, owner, ..parse(app, request)? };
    caller.check_properties(&registration.properties)?;
    let session = registration.session.clone();
    let _turn = app.grpc.turn(scope, &worker).await;
    check_replacement(app, scope, caller, &worker, session.as_ref(), peer).await?;
    check_leases(app, scope, caller, &worker).await?;
    let is_start = app.handle.register(scope, &worker, registration).await.map_err(Problem::from)?;
    match &session {
        Some(session) => {
            let (worker, session) = (worker.clone(), session.clone());
            let start = StartSession { tenant: scope.tenant.clone(), worker, session };
            app.handle.start_session(start).await.map_err(Problem::from)?;
        }
        // What the worker held before it started anew is lost to it, but its heartbeats would extend it. A stream also
        // begins anew after a lost connection, and its leases are named by their ids.
        None if is_start && contract == Contract::Scheduler => {
            let (app, scope, worker) = (app.clone(), scope.clone(), worker.clone());
            let session = Session { app, scope, worker, id: None, owner: None };
            release_held(&session, ReleaseCause::Session).await?;
        }
        None => {}
    }
    note_leases(app, scope, caller, &worker, session.as_ref()).await?;
    let settings = app.grpc.settings;
    Ok(RegisterWorkerResponse {
        heartbeat_interval: Some(span(app.grpc.heartbeat_interval())),
        heartbeat_timeout: Some(span(settings.heartbeat_timeout)),
        long_poll_timeout: Some(span(settings.long_poll_timeout)),
    })
}

/// Notes what the worker still holds, because after a restart nobody knows whose worker it is.
async fn note_leases(
    app: &App,
    scope: &Scope,
    caller: &Caller,
    worker: &Arc<str>,
    session: Option<&Arc<str>>,
) -> Result<(), Problem> {
    if caller.worker_only().is_none() {
        return Ok(());
    }
    let held = app.handle.tenant_leases(scope.tenant.clone(), worker.clone()).await?;
    let is_own = |held: &&HeldLease| match session {
        Some(_) => held.session.as_ref() == session,
        None => held.contract == Some(Contract::Scheduler),
    };
    let leases: Vec<LeaseRef> = held.iter().filter(is_own).map(|held| held.lease.clone()).collect();
    app.note_leases(caller, &leases).await;
    Ok(())
}

/// The worker leaves: what it holds is given back at no cost, and it is forgotten.
pub(super) async fn unregister(
    app: &App,
    scope: Scope,
    caller: &Caller,
    request: &UnregisterWorkerRequest,
    peer: Option<IpAddr>,
) -> Result<UnregisterWorkerResponse, Status> {
    let session = Session::parse(app, scope, caller, &request.worker_id, &request.session_id).await?;
    check_replacement(app, &session.scope, caller, &session.worker, session.id.as_ref(), peer).await?;
    check_leases(app, &session.scope, caller, &session.worker).await?;
    // First, so that it is offered nothing between its last lease and its end.
    let unregistered = app.handle.unregister(&session.scope, &session.worker, session.id.as_ref());
    unregistered.await.map_err(Problem::from)?;
    let released_leases = release_held(&session, ReleaseCause::Worker).await?;
    Ok(UnregisterWorkerResponse { released_leases })
}

/// Releases what the session holds, at no cost, and returns how many leases that were.
async fn release_held(session: &Session, cause: ReleaseCause) -> Result<u32, Problem> {
    let held = session.held().await?;
    let released_leases = held.len() as u32;
    let releases = held.into_iter().map(|held| ReleaseLease { lease: held.lease, cause });
    let items = releases.map(|release| BatchItem::Command(Command::ReleaseLease(release)));
    heartbeat::decide(&session.app, items.collect()).await?;
    Ok(released_leases)
}

/// A key that is limited to some queues may not replace or end a worker that holds leases of others: they go with it, in all
/// workspaces of the tenant. Leases of contracts without registration stay, whoever registers.
async fn check_leases(app: &App, scope: &Scope, caller: &Caller, worker: &Arc<str>) -> Result<(), Problem> {
    if !caller.has_queue_limit() {
        return Ok(());
    }
    let held = app.handle.tenant_leases(scope.tenant.clone(), worker.clone()).await?;
    let mut registered =
        held.iter().filter(|held| held.session.is_some() || held.contract == Some(Contract::Scheduler));
    if registered.any(|held| !caller.may_use(&held.queue)) {
        let detail = format!(
            "the worker {worker} holds leases of queues that the key is not for: give this worker another name, or wait until \
             those leases are over"
        );
        return Err(caller.forbidden(detail));
    }
    Ok(())
}

pub(super) fn properties(field: &str, pairs: &HashMap<String, String>) -> Result<Arc<Properties>, Problem> {
    let sorted: BTreeMap<_, _> = pairs.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    names::properties(field, Some(&sorted))
}

fn parse(app: &App, request: &RegisterWorkerRequest) -> Result<Registration, Problem> {
    let capabilities = request.capabilities.unwrap_or_default();
    let resources = capabilities.resources.unwrap_or_default();
    let bytes = |field: &str, bytes: i64| {
        u64::try_from(bytes).map_err(|_| Problem::field(field, "must not be negative"))
    };
    let cpu_cores = names::within("capabilities.resources.cpu_cores", resources.cpu_cores, 0.0..=1e9)?;
    Ok(Registration {
        session: optional_name("session_id", &request.session_id)?,
        properties: properties("platform_properties", &request.platform_properties)?,
        max_concurrent_executions: u32::try_from(capabilities.max_concurrent_executions)
            .map_err(|_| Problem::field("capabilities.max_concurrent_executions", "must not be negative"))?,
        cpu_cores,
        memory_bytes: bytes("capabilities.resources.memory_bytes", resources.memory_bytes)?,
        disk_bytes: bytes("capabilities.resources.disk_bytes", resources.disk_bytes)?,
        registered_at: app.handle.now(),
        ..Registration::default()
    })
}
