//! The ownership of registered workers. Only the identity that registered a worker may act as it or, where nobody is
//! authenticated, the address that did, or its own session. Its leases go with it, so nobody else replaces it, ends it or
//! speaks for it.

use std::net::IpAddr;
use std::sync::Arc;

use authority::Scope;
use coordinator::Registration;
use tonic::Status;

use crate::app::App;
use crate::convert::{Problem, grpc_status};
use crate::edge::auth::Caller;

/// Checks that the caller may replace or end a worker, in all workspaces of its tenant.
pub(super) async fn check_replacement(
    app: &App,
    scope: &Scope,
    caller: &Caller,
    worker: &Arc<str>,
    session: Option<&Arc<str>>,
    peer: Option<IpAddr>,
) -> Result<(), Status> {
    let registrations = app.handle.registrations(&scope.tenant, worker).await.map_err(Problem::from)?;
    if caller.identity().is_some() {
        return Ok(registrations.iter().try_for_each(|other| check_owner(app, caller, worker, other))?);
    }
    let is_foreign = |other: &Arc<Registration>| {
        let is_same_session = session.is_some() && other.session.as_ref() == session;
        !is_same_session && peer.zip(other.address).is_some_and(|(peer, address)| peer != address)
    };
    if registrations.iter().any(is_foreign) {
        let tenant = &scope.tenant;
        let address = peer.map(tracing::field::display);
        tracing::error!(%worker, %tenant, address, "worker refused: it is registered from another address");
        return Err(grpc_status::registered_elsewhere(worker));
    }
    Ok(())
}

/// Checks that the caller may speak for a worker, which its name alone does not prove.
pub(super) async fn check_speaker(
    app: &App,
    scope: &Scope,
    caller: &Caller,
    worker: &Arc<str>,
) -> Result<(), Problem> {
    if caller.identity().is_none() {
        return Ok(());
    }
    match app.handle.registered(scope, worker).await? {
        Some(other) => check_owner(app, caller, worker, &other.registration),
        None => Ok(()),
    }
}

fn check_owner(
    app: &App,
    caller: &Caller,
    worker: &Arc<str>,
    registration: &Registration,
) -> Result<(), Problem> {
    let Some((owner, identity)) = registration.owner.as_ref().zip(caller.identity()) else { return Ok(()) };
    // A worker may come back with another key once its own was revoked.
    if owner == identity.id() || app.keys.is_ended_key(owner, app.handle.now()) {
        return Ok(());
    }
    let detail = format!(
        "the worker {worker} is registered by another identity: choose another worker_id, or wait until that worker leaves or \
         is silent for the heartbeat timeout"
    );
    Err(caller.forbidden(detail))
}
