//! The cache over plain HTTP, as Bazel, ccache and moon use it: `/cas/{hash}` holds blobs by their SHA-256, `/ac/{hash}`
//! holds entries in the format of the client, which are never read as results. Both may stand below a prefix.

mod get;
mod put;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::routing::get as at;
use blobs::{ActionCache, Blobs, Hash, RawKey, Tenant};
use serde_json::{Value, json};

use crate::app::App;
use crate::convert::{Code, Limit, Problem, scope};
use crate::edge::{InPath, Out};

/// First parts of paths that are served for other things, and cannot be prefixes.
const RESERVED_PREFIXES: [&str; 2] = ["v1", "internal"];
const MAX_PREFIX_BYTES: usize = 256;

pub(crate) fn routes() -> Router<App> {
    let raw = || at(get::raw).head(get::raw).put(put::raw);
    let blob = || at(get::blob).head(get::blob).put(put::blob);
    Router::new()
        .route("/status", at(status))
        .route("/ac/{hash}", raw())
        .route("/cas/{hash}", blob())
        .route("/{prefix}/ac/{hash}", raw())
        .route("/{prefix}/cas/{hash}", blob())
}

/// Clients ask this before they trust a cache.
async fn status() -> Out<Value> {
    Out::ok(json!({ "status": "ok" }))
}

/// The parts of a path: a hash, perhaps below a prefix.
#[derive(serde::Deserialize)]
struct Location {
    #[serde(default)]
    prefix: String,
    hash: String,
}

/// A call about a blob or an entry of a tenant.
struct Call {
    app: App,
    blobs: Arc<dyn Blobs>,
    action_cache: Arc<dyn ActionCache>,
    tenant: Tenant,
    /// Whether entries may be written.
    may_update: bool,
    /// The name of an entry; its key alone is the hash of a blob.
    raw: RawKey,
}

impl FromRequestParts<App> for Call {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Call, Problem> {
        let InPath(Location { prefix, hash }) = InPath::from_request_parts(parts, app).await?;
        let tenant = Tenant::new(&scope::of(&parts.headers)?.tenant)
            .map_err(|fault| Problem::new(Code::InvalidScope, fault.to_string()))?;
        let is_reserved = RESERVED_PREFIXES.contains(&&*prefix) || prefix.len() > MAX_PREFIX_BYTES;
        let Some(content) = app.content.as_ref().filter(|_| !is_reserved) else {
            return Err(Problem::new(Code::NotFound, format!("no cache is served below /{prefix}")));
        };
        let key = Hash::parse(&hash)
            .map_err(|fault| Problem::new(Code::InvalidField, format!("in the path: {fault}")))?;
        Ok(Call {
            app: app.clone(),
            blobs: content.blobs.clone(),
            action_cache: content.action_cache.clone(),
            tenant,
            may_update: content.settings.allow_uploads,
            raw: RawKey { prefix: prefix.into(), key },
        })
    }
}

fn problem(error: blobs::Error) -> Problem {
    use blobs::{Error, Refusal};
    let detail = error.to_string();
    match &error {
        Error::NotFound(_) | Error::Damaged(_) => Problem::new(Code::NotFound, detail),
        Error::Full { .. } | Error::DiskFull => Problem::new(Code::NoSpace, detail),
        Error::TenantFull { .. } => Problem::over_limit(Limit::BlobBytes, detail),
        Error::TooManyUploads { .. } | Error::TooManyReads { .. } | Error::TakenOver => {
            Problem::new(Code::Overloaded, detail)
        }
        Error::Refused { refusal: Refusal::OverLimit, .. } => Problem::new(Code::NoSpace, detail),
        Error::Unavailable(_) | Error::Refused { .. } => Problem::new(Code::NotServing, detail),
        Error::Io { .. } => {
            tracing::error!(%error, "the content store failed");
            Problem::new(Code::Internal, "the content store failed; its log says why")
        }
        _ => Problem::new(Code::InvalidField, detail),
    }
}
