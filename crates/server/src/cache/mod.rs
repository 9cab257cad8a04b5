//! The cache over plain HTTP, as Bazel, ccache and moon use it: `/cas/{hash}` holds content by its SHA-256, `/ac/{hash}`
//! holds whatever its client put there. Both may stand below a prefix. What is under `/ac/` is never read as a result of
//! an action: clients keep their own formats there.

mod get;
mod put;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get as at;
use blobs::{ActionCache, Blobs, Hash, Tenant};
use serde::Serialize;

use crate::app::App;
use crate::convert::problem::{Code, Problem};
use crate::convert::scope;
use crate::edge::json::Out;

/// First parts of paths that are served for other things, and cannot be prefixes.
const RESERVED_PREFIXES: [&str; 2] = ["v1", "internal"];
/// Longest prefix.
const MAX_PREFIX_BYTES: usize = 256;

/// The stores that back the cache.
#[derive(Clone)]
pub(crate) struct Stores {
    pub blobs: Arc<dyn Blobs>,
    pub action_cache: Arc<dyn ActionCache>,
}

pub(crate) fn routes(stores: Stores) -> Router<App> {
    let raw = || at(get::raw).head(get::raw).put(put::raw);
    let blob = || at(get::blob).head(get::blob).put(put::blob);
    Router::new()
        .route("/status", at(status))
        .route("/ac/{hash}", raw())
        .route("/cas/{hash}", blob())
        .route("/{prefix}/ac/{hash}", raw())
        .route("/{prefix}/cas/{hash}", blob())
        .layer(axum::Extension(stores))
}

#[derive(Serialize)]
struct Status {
    status: &'static str,
}

/// Clients ask this before they trust a cache.
async fn status() -> Out<Status> {
    Out(StatusCode::OK, Status { status: "ok" })
}

/// The parts of a path: a hash, perhaps below a prefix.
#[derive(serde::Deserialize)]
struct Location {
    #[serde(default)]
    prefix: String,
    hash: String,
}

impl Location {
    fn hash(&self) -> Result<Hash, Problem> {
        let reserved = RESERVED_PREFIXES.contains(&self.prefix.as_str());
        if reserved || self.prefix.len() > MAX_PREFIX_BYTES {
            return Err(Problem::new(Code::NotFound, format!("no cache is served below /{}", self.prefix)));
        }
        Hash::parse(&self.hash)
            .map_err(|fault| Problem::new(Code::InvalidField, format!("in the path: {fault}")))
    }
}

fn tenant(headers: &HeaderMap) -> Result<Tenant, Problem> {
    let scope = scope::of(headers)?;
    Tenant::new(&scope.tenant).map_err(|fault| Problem::new(Code::InvalidScope, fault.to_string()))
}

fn problem(error: &blobs::Error) -> Problem {
    use blobs::Error;
    let detail = error.to_string();
    match error {
        Error::NotFound(_) | Error::Damaged(_) => Problem::new(Code::NotFound, detail),
        Error::Full { .. } | Error::DiskFull => Problem::new(Code::NoSpace, detail),
        Error::TooManyUploads { .. } | Error::TooManyReads { .. } | Error::TakenOver => {
            Problem::new(Code::Overloaded, detail)
        }
        Error::Io { .. } => {
            tracing::error!(%error, "the content store failed");
            Problem::new(Code::Internal, "the content store failed; its log says why")
        }
        _ => Problem::new(Code::InvalidField, detail),
    }
}
