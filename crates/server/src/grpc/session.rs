//! The worker of a call, and which session of it calls.

use std::sync::Arc;

use authority::{Contract, HeldLease, Scope};
use coordinator::{Registered, Registration};
use tonic::Status;

use super::ownership::check_speaker;
use super::values::optional_name;
use crate::app::App;
use crate::convert::names::name;
use crate::convert::{Problem, grpc_status};
use crate::edge::auth::Caller;

#[derive(Clone)]
pub(super) struct Session {
    pub app: App,
    pub scope: Scope,
    pub worker: Arc<str>,
    pub id: Option<Arc<str>>,
    /// The identity of the caller, if it is known.
    pub owner: Option<Arc<str>>,
}

/// The state of a session in the registry.
pub(super) enum SessionState {
    Current(Registered),
    /// Another session of the worker is registered.
    Replaced,
    /// The worker was silent for too long, or forgotten, or is another identity's; it may register again.
    Unknown,
}

impl Session {
    pub(super) async fn parse(
        app: &App,
        scope: Scope,
        caller: &Caller,
        worker_id: &str,
        session_id: &str,
    ) -> Result<Session, Problem> {
        let worker = name("worker_id", worker_id)?;
        caller.check_worker(&worker)?;
        check_speaker(app, &scope, caller, &worker).await?;
        let owner = caller.identity().map(|identity| identity.id().clone());
        Ok(Session { app: app.clone(), scope, worker, id: optional_name("session_id", session_id)?, owner })
    }

    pub(super) async fn state(&self) -> Result<SessionState, Problem> {
        Ok(match self.app.handle.registered(&self.scope, &self.worker).await? {
            None => SessionState::Unknown,
            Some(other) if self.owner.is_some() && other.registration.owner != self.owner => {
                SessionState::Unknown
            }
            Some(other) if self.id.is_some() && other.registration.session != self.id => {
                SessionState::Replaced
            }
            Some(registered) => SessionState::Current(registered),
        })
    }

    /// The state of the session, which is registered again at an owner of the ledger that took over after `epoch`: a new
    /// owner knows no worker, and this one is there.
    pub(super) async fn renewed_state(
        &self,
        registration: &Registration,
        epoch: &mut u64,
    ) -> Result<SessionState, Problem> {
        let handle = &self.app.handle;
        let (state, newest) = (self.state().await?, handle.epoch());
        if *epoch == newest || !matches!(state, SessionState::Unknown) {
            return Ok(state);
        }
        *epoch = newest;
        if handle.registered(&self.scope, &self.worker).await?.is_none() {
            handle.register(&self.scope, &self.worker, registration.clone()).await?;
        }
        self.state().await
    }

    /// The registration of the worker, which must be that of this session (S3-33).
    pub(super) async fn registered(&self) -> Result<Registered, Status> {
        self.check(self.state().await?)
    }

    /// The registration, if the state is that of this session.
    pub(super) fn check(&self, state: SessionState) -> Result<Registered, Status> {
        match state {
            SessionState::Current(registered) => Ok(registered),
            SessionState::Replaced => Err(grpc_status::superseded(&self.worker)),
            SessionState::Unknown => Err(grpc_status::not_registered(&self.worker)),
        }
    }

    /// Remembers a worker that asks for tasks while it is not registered, if it holds leases: the coordinator restarted, and
    /// the registration that follows must not pass for the start of a worker.
    pub(super) async fn remember_holder(&self) -> Result<(), Problem> {
        if matches!(self.state().await?, SessionState::Unknown) && !self.held().await?.is_empty() {
            self.app.handle.record_heartbeat(&self.scope, &self.worker).await?;
        }
        Ok(())
    }

    /// The leases of the worker that are this session's: those that the session was granted or, if it has no name, those
    /// that were obtained by LeaseTask. Leases of other contracts are not the scheduler's to touch.
    pub(super) async fn held(&self) -> Result<Vec<HeldLease>, Problem> {
        let mut held = self.app.handle.leases(self.scope.clone(), self.worker.clone()).await?;
        held.retain(|held| match &self.id {
            None => held.contract == Some(Contract::Scheduler),
            Some(_) => held.session == self.id,
        });
        Ok(held)
    }
}
