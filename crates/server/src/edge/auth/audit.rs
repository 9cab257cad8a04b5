//! The audit log: one line for each denial and for each administrative action, on the target `audit` and in the audit trail.
//! Lines are limited, so that nobody fills a disk with them; what was suppressed is counted in the next line.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use axum::response::Response;
use coordinator::Handle;
use tonic::Status;

use super::audit_budget::{Budget, Holder};
use super::identity::Identity;
use crate::app::App;
use crate::convert::names::beginning;
use crate::convert::problem::Code;
use crate::convert::{request_metadata, to_timestamp};
use crate::edge::audit_trail::{AuditLine, AuditTrail};
use crate::edge::operator::Context;
use crate::edge::permissions::{self, Call, GRPC};

/// Most lines in one second about denials of one address without a valid credential, and of all of them, who must not crowd
/// out the others.
const MAX_DENIALS_PER_ADDRESS: u32 = 10;
const MAX_STRANGERS_PER_SECOND: u32 = 20;
/// Most lines in one second about denials of one authenticated caller, and of all of them.
const MAX_DENIALS_PER_IDENTITY: u32 = 20;
const MAX_DENIALS_PER_SECOND: u32 = 400;
/// Most lines in one second about the administrative actions of one caller, and of all.
const MAX_ACTIONS_PER_IDENTITY: u32 = 250;
const MAX_ACTIONS_PER_SECOND: u32 = 1_000;
/// Who acts where nobody is authenticated.
const ANONYMOUS: &str = "anonymous";
/// Longest text of a line that the caller chose.
const MAX_TEXT_BYTES: usize = 128;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_METADATA: HeaderName = HeaderName::from_static(request_metadata::HEADER);
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
    request_metadata: Option<HeaderValue>,
}

impl Entry {
    pub(super) fn of(
        request: &Request,
        call: Option<&'static Call>,
        identity: Option<&Arc<Identity>>,
    ) -> Entry {
        Entry {
            who: identity.cloned(),
            from: request.extensions().get::<Context>().map(Context::peer),
            call,
            method: request.method().clone(),
            uri: request.uri().clone(),
            request_id: request_id(request.headers()),
            request_metadata: request.headers().get(REQUEST_METADATA).cloned(),
        }
    }

    /// Whose budget the line counts against.
    fn holder(&self) -> Holder {
        let actor = self.who.as_ref().and_then(|who| who.actor());
        match (actor, self.from) {
            (Some(actor), _) => Holder::Credential(actor.kind, actor.id.clone(), actor.name.clone()),
            (None, Some(address)) => Holder::Address(address),
            (None, None) => Holder::Others,
        }
    }

    /// What the line says about the caller and the call.
    fn line(&self, audit: &str, suppressed: Option<u64>, handle: &Handle) -> AuditLine {
        let actor = self.who.as_ref().and_then(|who| who.actor());
        let metadata = self.request_metadata.as_ref().and_then(request_metadata::decode_header);
        let text =
            |text: &str| Some(beginning(text, MAX_TEXT_BYTES).to_owned()).filter(|text| !text.is_empty());
        let tool = metadata.as_ref().and_then(|metadata| metadata.tool_details.as_ref());
        AuditLine {
            at: to_timestamp(handle.now()),
            position: handle.durable().0,
            audit: audit.to_owned(),
            who: self.who.as_ref().and_then(|who| text(who.name())),
            kind: actor.as_ref().map(|actor| actor.kind.name().to_owned()),
            id: actor.as_ref().and_then(|actor| text(&actor.id)),
            from: self.from.map(|from| from.to_string()),
            method: text(self.method()),
            path: text(self.path()),
            request_id: self.request_id().and_then(text),
            tool: tool.and_then(|tool| text(format!("{} {}", tool.tool_name, tool.tool_version).trim())),
            invocation_id: metadata.as_ref().and_then(|metadata| text(&metadata.tool_invocation_id)),
            suppressed,
            ..AuditLine::default()
        }
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
    headers.get(REQUEST_ID).filter(|id| id.len() <= MAX_TEXT_BYTES).cloned()
}

#[derive(Debug)]
pub(crate) struct AuditLog {
    strangers: Budget,
    denials: Budget,
    actions: Budget,
    trail: Option<AuditTrail>,
}

impl AuditLog {
    pub(crate) fn new(trail: Option<AuditTrail>) -> AuditLog {
        AuditLog {
            strangers: Budget::new(MAX_DENIALS_PER_ADDRESS, MAX_STRANGERS_PER_SECOND),
            denials: Budget::new(MAX_DENIALS_PER_IDENTITY, MAX_DENIALS_PER_SECOND),
            actions: Budget::new(MAX_ACTIONS_PER_IDENTITY, MAX_ACTIONS_PER_SECOND),
            trail,
        }
    }

    /// A request was refused before its admission, because of the host or the origin that it names.
    pub(crate) fn refused(&self, request: &Request, code: Code, handle: &Handle) {
        self.denied(&Entry::of(request, None, None), code.name(), handle);
    }

    pub(super) fn denied(&self, entry: &Entry, reason: &str, handle: &Handle) {
        let budget = if entry.who.is_some() { &self.denials } else { &self.strangers };
        let Some(suppressed) = budget.admit(entry.holder(), handle.now()) else { return };
        let line = AuditLine { reason: Some(reason.to_owned()), ..entry.line("denied", suppressed, handle) };
        self.write(line, "a call was denied");
    }

    /// An administrative action was done, or refused by the call itself; without a status its caller hung up before the end.
    fn allowed(&self, entry: &Entry, status: Option<u16>, handle: &Handle) {
        let Some(suppressed) = self.actions.admit(entry.holder(), handle.now()) else { return };
        let mut line = AuditLine { status, ..entry.line("allowed", suppressed, handle) };
        line.who.get_or_insert_with(|| ANONYMOUS.to_owned());
        self.write(line, "an administrative call was made");
    }

    fn write(&self, line: AuditLine, message: &str) {
        let AuditLine { audit, reason, who, kind, id, from, method, path, status, request_id, .. } = &line;
        let AuditLine { tool, invocation_id, suppressed, .. } = &line;
        tracing::info!(
            target: "audit", audit, reason, who, kind, id, from, method, path, status, request_id, tool, invocation_id,
            suppressed, "{message}"
        );
        if let Some(trail) = &self.trail {
            trail.append(line);
        }
    }
}

/// A request that was admitted. The call itself may deny it still, and an administrative one has its line when it ends.
pub(crate) struct Admitted {
    app: App,
    /// Who acts, within a tenant of theirs; none for a call that anyone may make.
    identity: Option<Arc<Identity>>,
    entry: Entry,
    is_denied: AtomicBool,
}

impl Admitted {
    pub(super) fn new(app: App, identity: Option<Arc<Identity>>, entry: Entry) -> Arc<Admitted> {
        Arc::new(Admitted { app, identity, entry, is_denied: AtomicBool::new(false) })
    }

    pub(super) fn identity(&self) -> Option<&Arc<Identity>> {
        self.identity.as_ref()
    }

    /// Logs that the call is denied, once, however many parts of it are.
    pub(crate) fn deny(&self, reason: &str) {
        if !self.is_denied.swap(true, Ordering::Relaxed) {
            self.app.audit.denied(&self.entry, reason, &self.app.handle);
        }
    }

    /// The line of an administrative call; none for another call.
    pub(super) fn action(self: &Arc<Admitted>) -> Option<Action> {
        let is_audited = self.entry.call.is_some_and(|call| call.is_audited);
        is_audited.then(|| Action { admitted: self.clone(), status: None })
    }
}

/// The line of an administrative call on a server without authentication.
pub(super) fn anonymous_action(app: &App, request: &Request) -> Option<Action> {
    let call = permissions::find_audited(request.method(), request.uri().path())?;
    Admitted::new(app.clone(), None, Entry::of(request, Some(call), None)).action()
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
        let Admitted { app, entry, is_denied, .. } = &*self.admitted;
        if !is_denied.load(Ordering::Relaxed) {
            app.audit.allowed(entry, self.status, &app.handle);
        }
    }
}

/// A call that fails has its status in the headers; one that has a message to send ends well.
fn grpc_status(response: &Response) -> u16 {
    Status::from_header_map(response.headers()).map_or(0, |status| status.code() as u16)
}
