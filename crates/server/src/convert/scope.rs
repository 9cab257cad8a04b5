//! Parses the scope of a request: the tenant and the workspace that its headers name.

use std::sync::{Arc, LazyLock};

use authority::Scope;
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use wire::{DEFAULT_SCOPE_NAME, TENANT_HEADER, WORKSPACE_HEADER};

use crate::app::App;
use crate::convert::names::fault_of_name;
use crate::convert::{Code, Problem};
use crate::edge::InPath;

const MAX_SCOPE_NAME_BYTES: usize = 128;

static DEFAULT: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(DEFAULT_SCOPE_NAME));

/// The server, and the scope of the request at hand: what most calls begin with.
pub(crate) struct Scoped {
    pub app: App,
    pub scope: Scope,
}

impl FromRequestParts<App> for Scoped {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Scoped, Problem> {
        Ok(Scoped { app: app.clone(), scope: of(&parts.headers)? })
    }
}

/// The same, with the id or the name in the path.
pub(crate) struct ScopedPath {
    pub app: App,
    pub scope: Scope,
    pub id: String,
}

impl FromRequestParts<App> for ScopedPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<ScopedPath, Problem> {
        let scope = of(&parts.headers)?;
        let InPath(id) = InPath::from_request_parts(parts, app).await?;
        Ok(ScopedPath { app: app.clone(), scope, id })
    }
}

pub(crate) fn of(headers: &HeaderMap) -> Result<Scope, Problem> {
    Ok(Scope { tenant: tenant_of(headers)?, workspace: named(headers, WORKSPACE_HEADER)? })
}

/// The tenant that the headers name.
pub(crate) fn tenant_of(headers: &HeaderMap) -> Result<Arc<str>, Problem> {
    named(headers, TENANT_HEADER)
}

fn named(headers: &HeaderMap, header: &str) -> Result<Arc<str>, Problem> {
    let mut values = headers.get_all(header).iter();
    let Some(value) = values.next() else { return Ok(DEFAULT.clone()) };
    let refused = |what: &str| {
        let detail = format!("{header}: {what}");
        Problem { field: Some(header.to_owned()), ..Problem::new(Code::InvalidScope, detail) }
    };
    if values.next().is_some() {
        return Err(refused("is given more than once"));
    }
    let name = std::str::from_utf8(value.as_bytes()).map_err(|_| refused("is not UTF-8"))?;
    match fault_of_scope_name(name) {
        Some(what) => Err(refused(&what)),
        None => Ok(Arc::from(name)),
    }
}

/// What is wrong with the name of a tenant or a workspace, or nothing.
pub fn fault_of_scope_name(name: &str) -> Option<String> {
    fault_of_name(name, MAX_SCOPE_NAME_BYTES)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn tenant(values: &[&[u8]]) -> Result<Arc<str>, Problem> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TENANT_HEADER, HeaderValue::from_bytes(value).unwrap());
        }
        named(&headers, TENANT_HEADER)
    }

    #[test]
    fn a_request_that_names_none_is_in_the_default_one() {
        assert_eq!(&*tenant(&[]).unwrap(), "default");
        assert_eq!(wire::DEFAULT_SCOPE_NAME, authority::limits::DEFAULT_TENANT);
        assert_eq!(&*tenant(&[b"acme"]).unwrap(), "acme");
    }

    #[test]
    fn i2_a_bad_or_ambiguous_name_is_refused() {
        for values in [&[&b""[..]][..], &[&[b'x'; 129]], &[b"a", b"b"], &[b"\xff"], &[b"a\tb"]] {
            assert_eq!(tenant(values).unwrap_err().code, Code::InvalidScope);
        }
    }
}
