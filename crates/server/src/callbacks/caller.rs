//! Authenticates callbacks: the task token is verified before anything else in the request.

use authority::LeaseRef;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use jiff::Timestamp;
use wire::{TENANT_HEADER, WORKSPACE_HEADER};

use super::refusal::Refusal;
use crate::app::App;
use crate::convert::task_token::{Claims, is_well_formed};
use crate::convert::{scope, to_timestamp};
use crate::edge::operator::Context;
use crate::edge::{InPath, failures};

pub(crate) struct Caller {
    pub app: App,
    pub claims: Claims,
    pub lease: LeaseRef,
    pub newest_key: bool,
}

impl FromRequestParts<App> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Caller, Refusal> {
        let caller = Caller::verify(parts, app).await;
        let refusal = caller.as_ref().err().filter(|refusal| refusal.is_invalid_token());
        if let Some((_, admitted)) = refusal.zip(Context::admitted(&parts.extensions)) {
            admitted.deny("invalid_token");
        }
        caller
    }
}

impl Caller {
    async fn verify(parts: &mut Parts, app: &App) -> Result<Caller, Refusal> {
        // Anyone may send anything: what is no token at all does not reach the coordinator.
        let token = bearer(&parts.headers).filter(|token| is_well_formed(token));
        let token = token.ok_or_else(Refusal::invalid_token)?;
        let key_ring = app.task_tokens.key_ring_if_any(&app.handle).await?;
        let verified = key_ring.and_then(|key_ring| key_ring.verify(token, app.handle.now()));
        let (claims, newest_key) = verified.ok_or_else(Refusal::invalid_token)?;
        let lease = claims.lease().ok_or_else(Refusal::invalid_token)?;
        let InPath(task_id) = InPath::<String>::from_request_parts(parts, app).await?;
        let scope = scope::of(&parts.headers)?;
        // The token says where the task lives; a request that names another place has the wrong token for it.
        let elsewhere = [
            (TENANT_HEADER, scope.tenant != lease.scope.tenant),
            (WORKSPACE_HEADER, scope.workspace != lease.scope.workspace),
        ]
        .into_iter()
        .any(|(name, differs)| differs && parts.headers.contains_key(name));
        if elsewhere || task_id != claims.task_id {
            Err(Refusal::invalid_token())
        } else {
            Ok(Caller { app: app.clone(), claims, lease, newest_key })
        }
    }
}

impl Caller {
    /// Measures the clock of the worker. Nothing is decided by it.
    pub(super) fn measure_clock(&self, said: Option<Timestamp>) {
        if let Some(said) = said {
            self.app.metrics.worker_clock(said, to_timestamp(self.app.handle.now()));
        }
    }
}

failures!(CallbackFails: wire::CallbackProblem {
    400 "`invalid_argument`", 401 "`invalid_token`", 404 "`task_not_found`", 503 ""
});

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn s1_6_a_callback_has_exactly_one_bearer_token() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::try_from(*value).unwrap());
            }
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(read(&["Bearer abc"]).as_deref(), Some("abc"));
        assert_eq!(read(&["bearer abc"]).as_deref(), Some("abc"));
        for bad in [&[][..], &["abc"], &["Basic abc"], &["Bearer"], &["Bearer a", "Bearer b"]] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
