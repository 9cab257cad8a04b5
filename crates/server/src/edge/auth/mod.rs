//! Authentication and authorization, in one layer for HTTP and gRPC, before any body is read: who calls, by the API key or the
//! token of the request; whether the table of permissions lets that caller make the call; and the tenant that the call is for.

mod audit;
mod audit_budget;
mod certificate_rule;
mod credential;
mod identity;
mod key_table;
mod revocable_call;
mod secret;

use std::sync::Arc;

use authority::Time;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tonic::Status;
use wire::TENANT_HEADER;

use crate::app::App;
use crate::convert::{Code, Problem, scope};
use crate::edge::fallback::is_grpc;
use crate::edge::operator::{InProcess, NamesTenant};
use crate::edge::permissions::{self, Access, Call};
use audit::Entry;
pub(crate) use audit::{Admitted, AuditLog, anonymous_action};
use certificate_rule::ByCertificate;
pub(crate) use certificate_rule::CertificateRules;
pub use certificate_rule::{CertificateAttribute, CertificateRule};
use credential::Credential;
pub use identity::Grants;
pub(crate) use identity::{Caller, Identity};
pub(crate) use key_table::KeyTable;
pub use secret::{NewKey, Secret};

/// Who may call a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMode {
    /// Everyone who can reach it may do everything.
    #[default]
    None,
    /// Holders of API keys, each within the roles of the key.
    Keys,
}

/// The layer of all routes.
pub(crate) async fn layer(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let call =
        permissions::find(request.method(), request.uri().path(), route.as_ref().map(MatchedPath::as_str));
    let (identity, admitted) = match authenticate(&app, &request, call).await {
        Ok(identity) => {
            let admitted = authorize(&mut request, call, identity.as_ref());
            (identity, admitted)
        }
        Err(problem) => (None, Err(problem)),
    };
    let entry = Entry::of(&request, call, identity.as_ref());
    if let Err(problem) = admitted {
        app.audit.denied(&entry, problem.code.name(), &app.handle);
        let is_grpc = is_grpc(request.headers());
        return if is_grpc { Status::from(problem).into_http() } else { problem.into_response() };
    }
    let admitted = Admitted::new(app.clone(), entry);
    let action = admitted.action();
    request.extensions_mut().insert(admitted);
    // Other calls are over so soon that it does not matter.
    let long = call.filter(|call| call.is_long).zip(identity.as_deref());
    let response = match long {
        Some((call, identity)) => {
            let ended = Box::pin(app.keys.ended(identity, app.handle.now()));
            revocable_call::run(next.run(request), ended, call.method == permissions::GRPC).await
        }
        None => next.run(request).await,
    };
    if let Some(action) = action {
        action.ended(&response);
    }
    response
}

/// Who calls; none for a call that anyone may make.
fn authenticate<'a>(
    app: &'a App,
    request: &'a Request,
    call: Option<&Call>,
) -> impl Future<Output = Result<Option<Arc<Identity>>, Problem>> + Send + use<'a> {
    // The body of a request cannot be shared between threads, so the future has the headers only.
    let headers = request.headers();
    let is_open = call.is_some_and(|call| matches!(call.access, Access::Anyone | Access::TaskToken));
    let is_in_process = request.extensions().get::<InProcess>().is_some();
    let certificate = request.extensions().get::<ByCertificate>();
    async move {
        match (is_open, is_in_process) {
            (true, _) => Ok(None),
            (false, true) => Ok(Some(app.embedded_worker.clone())),
            (false, false) => by_credential(app, headers, certificate).await.map(Some),
        }
    }
}

async fn by_credential(
    app: &App,
    headers: &HeaderMap,
    certificate: Option<&ByCertificate>,
) -> Result<Arc<Identity>, Problem> {
    let refused = |detail: &str| Problem::new(Code::Unauthenticated, detail);
    let now = app.handle.now();
    let Some(credential) = credential::of(headers) else {
        return match certificate {
            Some(ByCertificate(identity)) if identity.is_live(now) => Ok(identity.clone()),
            Some(_) => {
                Err(refused("the client certificate has expired, or its CA is no longer trusted here"))
            }
            None => Err(refused(&nothing_sent(app))),
        };
    };
    // One answer for all, so that nobody learns which part of a key was right.
    let known = match credential {
        Ok(Credential::Key { id, hash }) => app.keys.find(&id, &hash, now),
        Ok(Credential::Token(token)) => return of_token(app, token, now).await,
        Err(()) => None,
    };
    known.ok_or_else(|| refused("the API key is not valid: it is malformed, unknown, revoked or expired"))
}

/// What to send, for a caller who sent nothing.
fn nothing_sent(app: &App) -> String {
    let certificate = if app.certificates.is_empty() {
        ""
    } else {
        "; or connect with a client certificate to which a rule of auth.certificates applies"
    };
    format!(
        "the server needs an API key: send `Authorization: Bearer KEY`, or HTTP basic with the key as the password; an admin \
         creates keys with `lessor key create`{certificate}"
    )
}

/// The holder of a token. The log says what is wrong with one.
async fn of_token(app: &App, token: &str, now: Time) -> Result<Arc<Identity>, Problem> {
    match app.issuers.verify(token, now).await {
        Ok(token) => Ok(Arc::new(Identity::of_token(&token))),
        Err(refusal) => {
            tracing::debug!(%refusal, "a token was refused");
            let detail = "the token is not valid, or no rule gives its holder any role";
            Err(Problem::new(Code::Unauthenticated, detail))
        }
    }
}

/// Whether the caller may make the call, and for which tenant.
fn authorize(
    request: &mut Request,
    call: Option<&Call>,
    identity: Option<&Arc<Identity>>,
) -> Result<(), Problem> {
    let Some(identity) = identity else { return Ok(()) };
    let forbidden = |detail: String| Err(Problem::new(Code::Forbidden, detail));
    let is_routed = request.extensions().get::<MatchedPath>().is_some();
    match call.map(|call| call.access) {
        // Nothing is served there, which the fallback says.
        None if !is_routed => return Ok(()),
        None => {
            let (method, path) = (request.method(), request.uri().path());
            return forbidden(format!("no role may call {method} {path}"));
        }
        Some(access @ Access::Roles(roles)) => {
            let is_permitted = roles.iter().chain([&authority::Role::Admin]).any(|role| identity.has(*role));
            if !is_permitted {
                let (needed, roles) = (access.describe(), identity.roles());
                let (method, path) = call.map_or(("", ""), |call| (call.method, call.path));
                let holder = identity.holder();
                return forbidden(format!(
                    "{method} {path} needs one of the roles {needed}; {holder} has {roles}"
                ));
            }
        }
        Some(Access::Anyone | Access::TaskToken | Access::AnyKey) => {}
    }
    if request.headers().contains_key(TENANT_HEADER) {
        request.extensions_mut().insert(NamesTenant);
    }
    choose_tenant(request.headers_mut(), identity)?;
    request.extensions_mut().insert(identity.clone());
    Ok(())
}

/// The tenant comes from the identity; the header chooses among its tenants. From here on the header says which one it is.
fn choose_tenant(headers: &mut HeaderMap, identity: &Identity) -> Result<(), Problem> {
    if headers.contains_key(TENANT_HEADER) {
        return identity.check_tenant(&scope::of(headers)?.tenant);
    }
    let tenant = HeaderValue::from_str(identity.first_tenant())
        .or_else(|_| HeaderValue::from_bytes(identity.first_tenant().as_bytes()));
    let unsendable = |_| Problem::new(Code::Internal, "the tenant of the key is no header value");
    headers.insert(TENANT_HEADER, tenant.map_err(unsendable)?);
    Ok(())
}
