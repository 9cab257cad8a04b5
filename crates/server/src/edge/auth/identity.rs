//! The caller of a request: the holder of an API key, a token or a certificate, with its tenants, roles and limits.

use std::convert::Infallible;
use std::sync::Arc;

use authority::command::LeaseTasks;
use authority::{Actor, ActorKind, ApiKey, LeaseRef, Properties, Role, Scope, TaskId, Time};
use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use coordinator::Handle;
use wire::DEFAULT_SCOPE_NAME;

use super::audit::Admitted;
use super::certificate_rule::CertificateHolder;
use crate::convert::{Code, Problem};
use crate::edge::jwt::{TokenIdentity, matches};
use crate::edge::operator::Context;
use crate::edge::tls::PeerChain;

/// The rights of an identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    pub tenants: Vec<Arc<str>>,
    pub roles: Vec<Role>,
    /// Only these queues; all of them if empty.
    pub queues: Vec<Arc<str>>,
    /// The beginning of the names of its workers.
    pub worker_prefix: Option<Arc<str>>,
    /// The only properties that its workers may announce, by name and value; all of them if empty. A value that ends with `*`
    /// stands for all that begin like it.
    pub properties: Vec<(Arc<str>, Arc<str>)>,
}

/// The beginning of the id of a key's holder; the id of the key follows.
pub(super) const KEY_IDENTITY: &str = "key ";

/// What an identity proved itself by.
#[derive(Debug)]
enum IdentityCredential {
    /// The id of the key.
    Key(Arc<str>),
    /// The issuer.
    Token(Arc<str>),
    Certificate(Arc<PeerChain>),
    /// The worker in the process of the server.
    InProcess,
}

#[derive(Debug)]
pub(crate) struct Identity {
    /// What stays the same over the requests of a caller, and no other caller has: a name may be given twice.
    id: Arc<str>,
    name: Arc<str>,
    credential: IdentityCredential,
    grants: Arc<Grants>,
    /// Whether it may act for every tenant.
    all_tenants: bool,
    expires_at: Option<Time>,
}

impl Identity {
    pub(super) fn of_key(key: &ApiKey) -> Identity {
        let grants = Grants {
            tenants: key.tenants.clone(),
            roles: key.roles.clone(),
            queues: key.queues.clone(),
            worker_prefix: key.worker_prefix.clone(),
            properties: key.properties.iter().map(|entry| property(entry)).collect(),
        };
        let all_tenants = grants.roles.contains(&Role::Admin);
        Identity {
            id: format!("{KEY_IDENTITY}{}", key.id).into(),
            name: key.name.clone(),
            credential: IdentityCredential::Key(key.id.clone()),
            grants: Arc::new(grants),
            all_tenants,
            expires_at: key.expires_at,
        }
    }

    /// The worker in the process of the server, which needs no credential and serves the default tenant: the actions of
    /// different tenants do not share a worker.
    pub(crate) fn embedded_worker() -> Identity {
        let tenants = vec![Arc::from(DEFAULT_SCOPE_NAME)];
        let grants = Arc::new(Grants { tenants, roles: vec![Role::Worker], ..Grants::default() });
        let (name, credential): (Arc<str>, _) = ("embedded worker".into(), IdentityCredential::InProcess);
        Identity { id: name.clone(), name, credential, grants, all_tenants: false, expires_at: None }
    }

    pub(super) fn of_token(token: &TokenIdentity) -> Identity {
        let (id, name, grants) = (token.id.clone(), token.name.clone(), token.grants.clone());
        let all_tenants = grants.roles.contains(&Role::Admin);
        let credential = IdentityCredential::Token(token.issuer.clone());
        Identity { id, name, credential, grants, all_tenants, expires_at: Some(token.expires_at) }
    }

    pub(super) fn of_certificate(holder: CertificateHolder, chain: Arc<PeerChain>) -> Identity {
        let CertificateHolder { id, name, grants, expires_at } = holder;
        let all_tenants = grants.roles.contains(&Role::Admin);
        let credential = IdentityCredential::Certificate(chain);
        Identity { id, name, credential, grants, all_tenants, expires_at: Some(expires_at) }
    }

    pub(crate) fn id(&self) -> &Arc<str> {
        &self.id
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn key_id(&self) -> Option<&Arc<str>> {
        match &self.credential {
            IdentityCredential::Key(id) => Some(id),
            _ => None,
        }
    }

    /// The chain of the certificate that it proved itself by.
    pub(super) fn chain(&self) -> Option<&Arc<PeerChain>> {
        match &self.credential {
            IdentityCredential::Certificate(chain) => Some(chain),
            _ => None,
        }
    }

    /// Whether a certificate that was good during the handshake still is.
    pub(super) fn is_live(&self, now: Time) -> bool {
        self.expires_at.is_none_or(|at| now < at) && self.chain().is_none_or(|chain| chain.is_trusted())
    }

    /// How records name it; none for the worker in this process, which asks for no change.
    pub(crate) fn actor(&self) -> Option<Arc<Actor>> {
        let (kind, id) = match &self.credential {
            IdentityCredential::Key(id) => (ActorKind::Key, id),
            IdentityCredential::Token(issuer) => (ActorKind::Token, issuer),
            IdentityCredential::Certificate(_) => (ActorKind::Certificate, &self.id),
            IdentityCredential::InProcess => return None,
        };
        Some(Arc::new(Actor::new(kind, id, &self.name)))
    }

    /// How messages name it.
    pub(super) fn holder(&self) -> String {
        let credential = match self.credential {
            IdentityCredential::Key(_) => "key ",
            IdentityCredential::Token(_) => "token of ",
            IdentityCredential::Certificate(_) => "certificate of ",
            IdentityCredential::InProcess => "",
        };
        format!("the {credential}{}", self.name)
    }

    pub(super) fn expires_at(&self) -> Option<Time> {
        self.expires_at
    }

    pub(crate) fn has(&self, role: Role) -> bool {
        self.grants.roles.contains(&role)
    }

    /// Whether it may act for every tenant.
    pub(crate) fn is_of_all_tenants(&self) -> bool {
        self.all_tenants
    }

    /// Whether it may use the content store as a worker only: for the inputs and outputs of what it holds.
    fn is_worker_only(&self) -> bool {
        let is_in_process = matches!(self.credential, IdentityCredential::InProcess);
        let has_content =
            [Role::Builder, Role::CacheWriter, Role::Admin].into_iter().any(|role| self.has(role));
        !is_in_process && !has_content
    }

    /// The names of its roles, for people.
    pub(super) fn roles(&self) -> String {
        self.grants.roles.iter().map(|role| role.name()).collect::<Vec<_>>().join(", ")
    }

    /// The tenant of a call that names none.
    pub(crate) fn first_tenant(&self) -> &str {
        self.grants.tenants.first().map_or(DEFAULT_SCOPE_NAME, |tenant| tenant)
    }

    /// Checks that it may act for a tenant.
    pub(crate) fn check_tenant(&self, tenant: &str) -> Result<(), Problem> {
        let is_allowed = self.all_tenants || self.grants.tenants.iter().any(|mine| **mine == *tenant);
        let detail = || format!("{} is not for the tenant {tenant}", self.holder());
        if is_allowed { Ok(()) } else { Err(Problem::new(Code::Forbidden, detail())) }
    }
}

/// The caller of a request. Without authentication everyone may do everything.
#[derive(Clone, Default)]
pub(crate) struct Caller {
    /// Also for the audit log, which has what is denied here.
    admitted: Option<Arc<Admitted>>,
}

impl Caller {
    pub(crate) fn of(extensions: &Extensions) -> Caller {
        Caller { admitted: Context::admitted(extensions).cloned() }
    }

    pub(crate) fn identity(&self) -> Option<&Arc<Identity>> {
        self.admitted.as_ref().and_then(|admitted| admitted.identity())
    }

    /// The identity of a caller that may use the content store as a worker only.
    pub(crate) fn worker_only(&self) -> Option<&Arc<Identity>> {
        self.identity().filter(|identity| identity.is_worker_only())
    }

    /// How the record of a change names the caller; none where nobody is authenticated.
    pub(crate) fn actor(&self) -> Option<Arc<Actor>> {
        self.identity().and_then(|identity| identity.actor())
    }

    /// The problem of a call that the limits of the caller do not permit.
    pub(crate) fn forbidden(&self, detail: String) -> Problem {
        if let Some(admitted) = &self.admitted {
            admitted.deny(Code::Forbidden.name());
        }
        Problem::new(Code::Forbidden, detail)
    }

    /// Checks that it may act for a tenant.
    pub(crate) fn check_tenant(&self, tenant: &str) -> Result<(), Problem> {
        let checked = self.identity().map_or(Ok(()), |identity| identity.check_tenant(tenant));
        checked.map_err(|problem| self.forbidden(problem.detail))
    }

    /// Whether it may act on some queues only.
    pub(crate) fn has_queue_limit(&self) -> bool {
        self.identity().is_some_and(|identity| !identity.grants.queues.is_empty())
    }

    /// Whether it may act on a queue.
    pub(crate) fn may_use(&self, queue: &str) -> bool {
        !self.has_queue_limit()
            || self
                .identity()
                .is_some_and(|identity| identity.grants.queues.iter().any(|mine| **mine == *queue))
    }

    /// Checks that it may submit to these queues, lease from them, report on their tasks or configure them.
    pub(crate) fn check_queues<'a>(&self, queues: impl IntoIterator<Item = &'a str>) -> Result<(), Problem> {
        match queues.into_iter().find(|queue| !self.may_use(queue)) {
            None => Ok(()),
            Some(queue) => {
                let holder = self.identity().map(|identity| identity.holder()).unwrap_or_default();
                Err(self.forbidden(format!("{holder} is not for the queue {queue}")))
            }
        }
    }

    /// Checks that it may lease from these queues as this worker, with these properties.
    pub(crate) fn check_lease(&self, lease: &LeaseTasks) -> Result<(), Problem> {
        self.check_worker(&lease.worker)?;
        self.check_properties(&lease.properties)?;
        self.check_queues(lease.queues.iter().map(|queue| &**queue))
    }

    /// Checks that it may report on a lease: the id of a lease does not admit to another queue.
    pub(crate) async fn check_held(&self, handle: &Handle, lease: &LeaseRef) -> Result<(), Problem> {
        self.check_task(handle, &lease.scope, lease.task).await
    }

    /// Checks that it may act on a task, by the task's queue.
    pub(crate) async fn check_task(
        &self,
        handle: &Handle,
        scope: &Scope,
        task: TaskId,
    ) -> Result<(), Problem> {
        if !self.has_queue_limit() {
            return Ok(());
        }
        match handle.task(scope.clone(), task).await? {
            Some(detail) => self.check_queues([&*detail.view.queue.name]),
            // Nothing can be decided about a task that is unknown, and the answer says so.
            None => Ok(()),
        }
    }

    /// Checks that its workers may announce these properties, by which tasks find their workers.
    pub(crate) fn check_properties(&self, announced: &Properties) -> Result<(), Problem> {
        let Some(identity) = self.identity().filter(|identity| !identity.grants.properties.is_empty()) else {
            return Ok(());
        };
        let allowed = &identity.grants.properties;
        let is_allowed = |(name, value): &(&Arc<str>, &Arc<str>)| {
            allowed.iter().any(|(known, pattern)| known == *name && matches(value, pattern))
        };
        match announced.iter().find(|property| !is_allowed(property)) {
            None => Ok(()),
            Some((name, value)) => {
                let holder = identity.holder();
                let detail = format!("{holder} is not for workers with the property {name}={value}");
                Err(self.forbidden(detail))
            }
        }
    }

    /// Checks that it may act as a worker of this name.
    pub(crate) fn check_worker(&self, worker: &str) -> Result<(), Problem> {
        let prefix = self.identity().and_then(|identity| identity.grants.worker_prefix.as_ref());
        match prefix.zip(self.identity()) {
            Some((prefix, identity)) if !worker.starts_with(&**prefix) => {
                let holder = identity.holder();
                Err(self.forbidden(format!("{holder} is for workers whose names begin with {prefix}")))
            }
            _ => Ok(()),
        }
    }
}

/// A property of a key. An entry without a value would permit none.
fn property(entry: &str) -> (Arc<str>, Arc<str>) {
    let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
    (name.into(), value.into())
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Infallible> {
        Ok(Caller::of(&parts.extensions))
    }
}
