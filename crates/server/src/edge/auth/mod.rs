//! Authentication and authorization, in one place for HTTP and gRPC, before a request is routed and any body is read: who calls, by
//! the API key, the token or the certificate of the request; whether the table of permissions lets that caller make the call; and the tenant that the call is for.

mod admission;
mod audit;
mod audit_budget;
pub(crate) mod certificate_rule;
mod connection_key;
pub(crate) mod credential;
mod identity;
mod key_table;
mod revocation;
mod secret;

use std::sync::Arc;

use authority::{SecretHash, Time};
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use wire::{DEFAULT_SCOPE_NAME, TENANT_HEADER};

use crate::app::App;
use crate::convert::{Code, Problem, scope};
use crate::edge::operator::{InProcess, NamesTenant};
use crate::edge::permissions::{Access, Call};
pub(crate) use admission::{Admission, admit, deny_routes};
pub(crate) use audit::{Admitted, AuditLog};
use certificate_rule::ByCertificate;
pub(crate) use certificate_rule::CertificateRules;
pub use certificate_rule::{CertificateAttribute, CertificateRule};
pub(crate) use connection_key::ConnectionKey;
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

/// Who calls, as far as it is known without waiting.
enum Authenticated {
    /// None for a call that anyone may make.
    Now(Result<Option<Arc<Identity>>, Problem>),
    Later(Unverified),
}

/// A credential that is not known here.
enum Unverified {
    Token(String),
    /// A key that another node may have made: its id and the hash of its secret.
    Key(String, SecretHash),
}

fn authenticate(app: &App, key: &ConnectionKey, request: &Request, call: Option<&Call>) -> Authenticated {
    if call.is_some_and(|call| matches!(call.access, Access::Anyone | Access::TaskToken)) {
        return Authenticated::Now(Ok(None));
    }
    if request.extensions().get::<InProcess>().is_some() {
        return Authenticated::Now(Ok(Some(app.embedded_worker.clone())));
    }
    by_credential(app, key, request)
}

fn by_credential(app: &App, key: &ConnectionKey, request: &Request) -> Authenticated {
    let now = app.handle.now();
    let Some(header) = credential::header(request.headers()) else {
        return Authenticated::Now(by_certificate(app, request.extensions().get(), now).map(Some));
    };
    // Read before the table, so that no change in between is missed.
    let version = app.keys.version();
    let known = header.and_then(|value| key.find(value, version)).filter(|known| known.is_live(now));
    let holder = match (known, header) {
        (Some(known), _) => Some(known),
        (None, Some(value)) => match credential::parse(value) {
            Some(Credential::Token(token)) => {
                return Authenticated::Later(Unverified::Token(token.to_owned()));
            }
            Some(Credential::Key { id, hash }) => {
                let found = app.keys.find(&id, &hash, now);
                if found.is_none() && app.handle.has_other_nodes() {
                    return Authenticated::Later(Unverified::Key(id, hash));
                }
                found.inspect(|found| key.remember(value, version, found))
            }
            None => None,
        },
        (None, None) => None,
    };
    Authenticated::Now(holder.map(Some).ok_or_else(invalid_key))
}

/// One answer for all, so that nobody learns which part of a key was right.
fn invalid_key() -> Problem {
    let detail = "the API key is not valid: it is malformed, unknown, revoked or expired";
    Problem::new(Code::Unauthenticated, detail)
}

fn by_certificate(
    app: &App,
    certificate: Option<&ByCertificate>,
    now: Time,
) -> Result<Arc<Identity>, Problem> {
    match certificate {
        Some(ByCertificate(identity)) if identity.is_live(now) => Ok(identity.clone()),
        Some(_) => {
            let detail = "the client certificate has expired, or its CA is no longer trusted here";
            Err(Problem::new(Code::Unauthenticated, detail))
        }
        None => Err(Problem::new(Code::Unauthenticated, nothing_sent(app))),
    }
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

/// The holder of a credential that is not known here.
async fn verify(app: &App, credential: &Unverified) -> Result<Arc<Identity>, Problem> {
    match credential {
        Unverified::Token(token) => of_token(app, token).await,
        Unverified::Key(id, hash) => app.keys.find_anew(&app.handle, id, hash).await?.ok_or_else(invalid_key),
    }
}

/// The holder of a token. The log says what is wrong with one.
async fn of_token(app: &App, token: &str) -> Result<Arc<Identity>, Problem> {
    match app.issuers.verify(token, app.handle.now()).await {
        Ok(token) => Ok(Arc::new(Identity::of_token(&token))),
        Err(refusal) => {
            tracing::debug!(%refusal, "a token was refused");
            let detail = "the token is not valid, or no rule gives its holder any role";
            Err(Problem::new(Code::Unauthenticated, detail))
        }
    }
}

/// Whether the caller may make the call, and for which tenant. The identity that it acts under; none for a call that anyone
/// may make.
fn authorize(
    request: &mut Request,
    call: Option<&Call>,
    identity: Option<&Arc<Identity>>,
) -> Result<Option<Arc<Identity>>, Problem> {
    let Some(identity) = identity else { return Ok(None) };
    let forbidden = |detail: String| Err(Problem::new(Code::Forbidden, detail));
    match call.map(|call| call.access) {
        // No route answers it.
        None => return Ok(None),
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
    choose_tenant(request, identity)?;
    Ok(Some(identity.clone()))
}

/// The tenant comes from the identity; the header chooses among its tenants. From here on the header says which one it is.
fn choose_tenant(request: &mut Request, identity: &Identity) -> Result<(), Problem> {
    const TENANT: HeaderName = HeaderName::from_static(TENANT_HEADER);
    if request.headers().contains_key(TENANT) {
        identity.check_tenant(&scope::tenant_of(request.headers())?)?;
        request.extensions_mut().insert(NamesTenant);
        return Ok(());
    }
    let tenant = identity.first_tenant();
    // Which is what no header stands for.
    if tenant == DEFAULT_SCOPE_NAME {
        return Ok(());
    }
    let value = HeaderValue::from_str(tenant).or_else(|_| HeaderValue::from_bytes(tenant.as_bytes()));
    let unsendable = |_| Problem::new(Code::Internal, "the tenant of the key is no header value");
    request.headers_mut().insert(TENANT, value.map_err(unsendable)?);
    Ok(())
}
