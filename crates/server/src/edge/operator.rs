//! Calls that are the operator's and no tenant's. Where callers are authenticated, the table of permissions says who the
//! operator is; otherwise it is who calls from the machine of the server, without naming a tenant or a workspace.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::http::Extensions;
use axum::http::request::Parts;
use wire::{TENANT_HEADER, WORKSPACE_HEADER};

use crate::convert::{Code, Problem, scope};
use crate::edge::auth::{Admitted, Caller};

/// Both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
}

impl Ends {
    /// Whether the peer is on this machine: its address is one of loopback, or the one that it called.
    fn is_local(self) -> bool {
        let peer = self.peer.ip().to_canonical();
        peer.is_loopback() || peer == self.local.ip().to_canonical()
    }
}

/// What is known about every request: both ends of its connection, and its admission if callers are authenticated.
#[derive(Clone)]
pub(crate) struct Context {
    ends: Ends,
    admitted: Option<Arc<Admitted>>,
}

impl Context {
    pub(crate) fn new(ends: Ends) -> Context {
        Context { ends, admitted: None }
    }

    /// The address of the caller.
    pub(crate) fn peer(&self) -> IpAddr {
        self.ends.peer.ip().to_canonical()
    }

    /// Adds its admission to a request. Every request has a context; one without must not pass as anyone's.
    pub(crate) fn admit(request: &mut Request, admitted: Arc<Admitted>) -> Result<(), Problem> {
        let Some(context) = request.extensions_mut().get_mut::<Context>() else {
            return Err(Problem::new(Code::Internal, "the request came from no connection"));
        };
        context.admitted = Some(admitted);
        Ok(())
    }

    pub(crate) fn admitted(extensions: &Extensions) -> Option<&Arc<Admitted>> {
        extensions.get::<Context>().and_then(|context| context.admitted.as_ref())
    }
}

/// Marks the requests of the worker in this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InProcess;

/// Marks a request of an authenticated caller that named its tenant in the header; otherwise its admission did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamesTenant;

/// Proves that a request is the operator's.
pub(crate) struct Operator {
    caller: Caller,
    /// The tenant of the call.
    tenant: Arc<str>,
    names_tenant: bool,
}

impl Operator {
    /// The tenant that an order is for: the one that it names, which must be one of the caller's, or the one of the call.
    pub(crate) fn tenant(&self, named: Option<&str>) -> Result<Arc<str>, Problem> {
        let Some(named) = named.filter(|named| **named != *self.tenant) else {
            return Ok(self.tenant.clone());
        };
        if self.names_tenant {
            let what =
                format!("is {named}, but the header {TENANT_HEADER} is {}: send one of both", self.tenant);
            return Err(Problem::field("tenant", what));
        }
        self.caller.check_tenant(named)?;
        Ok(Arc::from(named))
    }
}

impl<S: Sync> FromRequestParts<S> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Operator, Problem> {
        let caller = Caller::of(&parts.extensions);
        if caller.identity().is_none() {
            check_operator(parts)?;
        }
        let tenant = scope::of(&parts.headers)?.tenant;
        let names_tenant = parts.extensions.get::<NamesTenant>().is_some();
        Ok(Operator { caller, tenant, names_tenant })
    }
}

/// Checks that a caller whom nobody authenticated is the operator.
fn check_operator(parts: &Parts) -> Result<(), Problem> {
    let is_local = parts.extensions.get::<Context>().is_some_and(|context| context.ends.is_local());
    let of_tenant = [TENANT_HEADER, WORKSPACE_HEADER].iter().any(|name| parts.headers.contains_key(*name));
    if !is_local {
        let detail = "only the operator may do this: call it from the machine that the server runs on";
        return Err(Problem::new(Code::OperatorOnly, detail));
    }
    if of_tenant {
        let detail = format!(
            "only the operator may do this, for all tenants: call it without {TENANT_HEADER} and {WORKSPACE_HEADER}"
        );
        return Err(Problem::new(Code::OperatorOnly, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_local_on_loopback_or_at_the_address_that_it_called() {
        for (peer, local, expected) in [
            ("127.0.0.1:5", "127.0.0.1:1", true),
            ("[::1]:5", "[::1]:1", true),
            ("[::ffff:127.0.0.1]:5", "[::ffff:127.0.0.1]:1", true),
            ("10.0.0.5:5", "10.0.0.5:1", true),
            ("10.0.0.6:5", "10.0.0.5:1", false),
            ("[fd00::6]:5", "[fd00::5]:1", false),
        ] {
            let ends = Ends { peer: peer.parse().unwrap(), local: local.parse().unwrap() };
            assert_eq!(ends.is_local(), expected, "{peer} at {local}");
        }
    }
}
