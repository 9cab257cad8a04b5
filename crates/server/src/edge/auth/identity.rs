//! Who calls: the holder of an API key, with its tenants, roles and limits.

use std::convert::Infallible;
use std::sync::Arc;

use authority::command::LeaseTasks;
use authority::{ApiKey, Role, Time};
use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use wire::DEFAULT_SCOPE_NAME;

use crate::convert::{Code, Problem};

#[derive(Debug)]
pub(crate) struct Identity(Arc<ApiKey>);

impl Identity {
    pub(super) fn new(key: Arc<ApiKey>) -> Identity {
        Identity(key)
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    pub(crate) fn key_id(&self) -> &str {
        &self.0.id
    }

    pub(super) fn expires_at(&self) -> Option<Time> {
        self.0.expires_at
    }

    pub(crate) fn has(&self, role: Role) -> bool {
        self.0.roles.contains(&role)
    }

    /// The names of its roles, for people.
    pub(super) fn roles(&self) -> String {
        self.0.roles.iter().map(|role| role.name()).collect::<Vec<_>>().join(", ")
    }

    /// The tenant of a call that names none.
    pub(crate) fn first_tenant(&self) -> &str {
        self.0.tenants.first().map_or(DEFAULT_SCOPE_NAME, |tenant| tenant)
    }

    /// Checks that it may act for a tenant.
    pub(crate) fn check_tenant(&self, tenant: &str) -> Result<(), Problem> {
        let is_allowed = self.has(Role::Admin) || self.0.tenants.iter().any(|mine| **mine == *tenant);
        let detail = || format!("the key {} is not for the tenant {tenant}", self.name());
        if is_allowed { Ok(()) } else { Err(Problem::new(Code::Forbidden, detail())) }
    }
}

/// The caller of a request. Without authentication everyone may do everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller(Option<Arc<Identity>>);

impl Caller {
    pub(crate) fn of(extensions: &Extensions) -> Caller {
        Caller(extensions.get::<Arc<Identity>>().cloned())
    }

    pub(crate) fn identity(&self) -> Option<&Arc<Identity>> {
        self.0.as_ref()
    }

    /// Checks that it may submit to these queues, lease from them or configure them.
    pub(crate) fn check_queues<'a>(&self, queues: impl IntoIterator<Item = &'a str>) -> Result<(), Problem> {
        let Some(identity) = self.0.as_ref().filter(|identity| !identity.0.queues.is_empty()) else {
            return Ok(());
        };
        let is_foreign = |queue: &&str| identity.0.queues.iter().all(|mine| **mine != **queue);
        match queues.into_iter().find(is_foreign) {
            None => Ok(()),
            Some(queue) => {
                let detail = format!("the key {} is not for the queue {queue}", identity.name());
                Err(Problem::new(Code::Forbidden, detail))
            }
        }
    }

    /// Checks that it may lease from these queues as this worker.
    pub(crate) fn check_lease(&self, lease: &LeaseTasks) -> Result<(), Problem> {
        self.check_worker(&lease.worker)?;
        self.check_queues(lease.queues.iter().map(|queue| &**queue))
    }

    /// Checks that it may act as a worker of this name.
    pub(crate) fn check_worker(&self, worker: &str) -> Result<(), Problem> {
        let prefix = self.0.as_ref().and_then(|identity| identity.0.worker_prefix.as_ref());
        match prefix.zip(self.0.as_ref()) {
            Some((prefix, identity)) if !worker.starts_with(&**prefix) => {
                let name = identity.name();
                let detail = format!("the key {name} is for workers whose names begin with {prefix}");
                Err(Problem::new(Code::Forbidden, detail))
            }
            _ => Ok(()),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Infallible> {
        Ok(Caller::of(&parts.extensions))
    }
}
