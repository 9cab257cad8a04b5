//! The audit log: one line for each denial and for each administrative action, on the target `audit`. Lines are limited, so
//! that nobody fills a disk with them; what was suppressed is counted in the next line of the same kind.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use authority::Time;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::response::Response;
use coordinator::LogBudget;
use tonic::Status;

use super::identity::Identity;
use crate::app::App;
use crate::convert::names::beginning;
use crate::edge::operator::Ends;
use crate::edge::permissions::{Call, GRPC};

/// Most lines in one second about denials of callers without a valid credential, who must not crowd out the others.
const MAX_STRANGERS_PER_SECOND: u32 = 20;
/// Most lines in one second about denials of authenticated callers.
const MAX_DENIALS_PER_SECOND: u32 = 100;
/// Most lines in one second about administrative actions.
const MAX_ACTIONS_PER_SECOND: u32 = 1_000;
/// Longest text of a line that the caller chose.
const MAX_TEXT_BYTES: usize = 128;
const REQUEST_ID_HEADER: &str = "x-request-id";
/// The beginning of the paths with the id of a lease, which is a secret as long as the lease lives.
const LEASES: &str = "/v1/leases/";
const LEASE_PATTERN: &str = "/v1/leases/{leaseId}";

/// What a line says about a request. Made for every request, so it only shares what the request has.
pub(super) struct Entry {
    who: Option<Arc<Identity>>,
    from: Option<IpAddr>,
    call: Option<&'static Call>,
    method: Method,
    uri: Uri,
    request_id: Option<HeaderValue>,
}

impl Entry {
    pub(super) fn of(
        request: &Request,
        call: Option<&'static Call>,
        identity: Option<&Arc<Identity>>,
    ) -> Entry {
        Entry {
            who: identity.cloned(),
            from: request.extensions().get::<Ends>().map(|ends| ends.peer.ip().to_canonical()),
            call,
            method: request.method().clone(),
            uri: request.uri().clone(),
            request_id: request_id(request.headers()),
        }
    }

    fn who(&self) -> (Option<&str>, Option<&str>) {
        self.who.as_ref().map_or((None, None), |who| (Some(who.name()), who.key_id().map(|id| &**id)))
    }

    fn method(&self) -> &str {
        self.call.map_or(self.method.as_str(), |call| call.method)
    }

    /// The path, because it names the task or the worker; its parameters may have anything.
    fn path(&self) -> &str {
        match self.uri.path() {
            path if path.starts_with(LEASES) => self.call.map_or(LEASE_PATTERN, |call| call.path),
            path => beginning(path, MAX_TEXT_BYTES),
        }
    }

    fn request_id(&self) -> Option<&str> {
        self.request_id.as_ref().and_then(|id| id.to_str().ok())
    }
}

/// The id by which a proxy or a client knows the request, if it is one that can be logged.
fn request_id(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(REQUEST_ID_HEADER).filter(|id| id.len() <= MAX_TEXT_BYTES).cloned()
}

#[derive(Debug)]
pub(crate) struct AuditLog {
    strangers: LogBudget,
    denials: LogBudget,
    actions: LogBudget,
}

impl Default for AuditLog {
    fn default() -> AuditLog {
        AuditLog {
            strangers: LogBudget::new(MAX_STRANGERS_PER_SECOND),
            denials: LogBudget::new(MAX_DENIALS_PER_SECOND),
            actions: LogBudget::new(MAX_ACTIONS_PER_SECOND),
        }
    }
}

impl AuditLog {
    fn denials_of(&self, is_known: bool) -> &LogBudget {
        if is_known { &self.denials } else { &self.strangers }
    }

    pub(super) fn denied(&self, entry: &Entry, reason: &str, now: Time) {
        let Some(suppressed) = self.denials_of(entry.who.is_some()).admit(now) else { return };
        let ((who, key_id), from) = (entry.who(), entry.from.map(tracing::field::display));
        let (method, path, request_id) = (entry.method(), entry.path(), entry.request_id());
        tracing::info!(
            target: "audit", audit = "denied", reason, who, key_id, from, method, path, request_id, suppressed,
            "a call was denied"
        );
    }

    /// An administrative action was done, or refused by the call itself; without a status its caller hung up before the end.
    fn allowed(&self, entry: &Entry, status: Option<u16>, now: Time) {
        let Some(suppressed) = self.actions.admit(now) else { return };
        let ((who, key_id), from) = (entry.who(), entry.from.map(tracing::field::display));
        let (method, path, request_id) = (entry.method(), entry.path(), entry.request_id());
        tracing::info!(
            target: "audit", audit = "allowed", who, key_id, from, method, path, status, request_id, suppressed,
            "an administrative call was made"
        );
    }
}

/// A request that the layer admitted. The call itself may deny it still, and an administrative one has its line when it ends.
pub(crate) struct Admitted {
    app: App,
    entry: Entry,
    is_denied: AtomicBool,
}

impl Admitted {
    pub(super) fn new(app: App, entry: Entry) -> Arc<Admitted> {
        Arc::new(Admitted { app, entry, is_denied: AtomicBool::new(false) })
    }

    /// Logs that the call is denied, once, however many parts of it are.
    pub(crate) fn deny(&self, reason: &str) {
        if !self.is_denied.swap(true, Ordering::Relaxed) {
            self.app.audit.denied(&self.entry, reason, self.app.handle.now());
        }
    }

    /// The line of an administrative call; none for another call.
    pub(super) fn action(self: &Arc<Admitted>) -> Option<Action> {
        let is_audited = self.entry.call.is_some_and(|call| call.is_audited);
        is_audited.then(|| Action { admitted: self.clone(), status: None })
    }
}

/// Logs an administrative call when it is dropped, so that a caller that hangs up leaves its line too.
pub(super) struct Action {
    admitted: Arc<Admitted>,
    status: Option<u16>,
}

impl Action {
    pub(super) fn ended(mut self, response: &Response) {
        let is_grpc = self.admitted.entry.call.is_some_and(|call| call.method == GRPC);
        self.status = Some(if is_grpc { grpc_status(response) } else { response.status().as_u16() });
    }
}

impl Drop for Action {
    fn drop(&mut self) {
        let Admitted { app, entry, is_denied } = &*self.admitted;
        if !is_denied.load(Ordering::Relaxed) {
            app.audit.allowed(entry, self.status, app.handle.now());
        }
    }
}

/// A call that fails has its status in the headers; one that has a message to send ends well.
fn grpc_status(response: &Response) -> u16 {
    Status::from_header_map(response.headers()).map_or(0, |status| status.code() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_leave_room_for_the_denials_of_known_callers() {
        let log = AuditLog::default();
        let lines = |is_known| {
            let admitted = |_: &u32| log.denials_of(is_known).admit(Time(5_000)).is_some();
            (0..1_000).filter(admitted).count()
        };
        assert_eq!((lines(false), lines(true)), (20, 100));
    }
}
