//! RegisterWorker and UnregisterWorker. Registration is soft: it steers who is offered work, and no lease depends on it.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use authority::command::{ReleaseLease, StartSession};
use authority::event::ReleaseCause;
use authority::{Command, Properties, Scope};
use coordinator::{BatchItem, Registration};
use tonic::Status;
use wire::grpc::{
    RegisterWorkerRequest, RegisterWorkerResponse, UnregisterWorkerRequest, UnregisterWorkerResponse,
};

use super::heartbeat;
use super::session::Session;
use super::values::{optional_name, span};
use crate::app::App;
use crate::convert::names::{self, name};
use crate::convert::{Code, Problem};

/// Makes a worker known, and gives back what its earlier sessions held. In this order, so that those are leased nothing
/// once it was given back, and one registration of a worker after the other, so that the last one keeps what it gets (W11).
pub(super) async fn register(
    app: &App,
    scope: &Scope,
    request: &RegisterWorkerRequest,
    peer: Option<IpAddr>,
) -> Result<RegisterWorkerResponse, Status> {
    let worker = name("worker_id", &request.worker_id)?;
    let registration = Registration { address: peer, ..parse(app, request)? };
    let session = registration.session.clone();
    let _turn = app.grpc.turn(scope, &worker).await;
    check_address(app, scope, &worker, peer)?;
    app.handle.registry().register(scope, &worker, registration, app.handle.now());
    if let Some(session) = session {
        let start = StartSession { tenant: scope.tenant.clone(), worker: worker.clone(), session };
        app.handle.start_session(start).await.map_err(Problem::from)?;
    }
    let settings = app.grpc.settings;
    Ok(RegisterWorkerResponse {
        heartbeat_interval: Some(span(app.grpc.heartbeat_interval())),
        heartbeat_timeout: Some(span(settings.heartbeat_timeout)),
        long_poll_timeout: Some(span(settings.long_poll_timeout)),
    })
}

/// The worker leaves: what it holds is given back at no cost, and it is forgotten.
pub(super) async fn unregister(
    app: &App,
    scope: Scope,
    request: &UnregisterWorkerRequest,
    peer: Option<IpAddr>,
) -> Result<UnregisterWorkerResponse, Status> {
    let session = Session::parse(app, scope, &request.worker_id, &request.session_id)?;
    check_address(app, &session.scope, &session.worker, peer)?;
    // First, so that it is offered nothing between its last lease and its end.
    app.handle.registry().unregister(&session.scope, &session.worker, session.id.as_ref());
    let held = session.held().await?;
    let released_leases = held.len() as u32;
    let releases =
        held.into_iter().map(|held| ReleaseLease { lease: held.lease, cause: ReleaseCause::Worker });
    let items = releases.map(|release| BatchItem::Command(Command::ReleaseLease(release)));
    heartbeat::decide(app, items.collect()).await?;
    Ok(UnregisterWorkerResponse { released_leases })
}

/// Until workers have identities, only the address that registered a worker may replace it or end it.
fn check_address(app: &App, scope: &Scope, worker: &Arc<str>, peer: Option<IpAddr>) -> Result<(), Problem> {
    let registered = app.handle.registry().registered(scope, worker, app.handle.now());
    match registered.and_then(|registered| registered.registration.address) {
        Some(address) if peer.is_some_and(|peer| peer != address) => {
            let detail = format!(
                "{worker} is registered from another address: choose another worker_id, or wait until that worker leaves or \
                 is silent for the heartbeat timeout"
            );
            Err(Problem::new(Code::WrongWorker, detail))
        }
        _ => Ok(()),
    }
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
        address: None,
    })
}
