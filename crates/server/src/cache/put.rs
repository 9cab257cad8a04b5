//! PUT: stores content under its hash, which is checked, or any bytes under a key.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use blobs::{Begun, Digest, DigestFunction, Expect, Progress, RawKey, Tenant, UploadRequest};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::time::{Instant, timeout};

use super::{Location, Stores, problem, tenant};
use crate::app::App;
use crate::convert::problem::{Code, Problem};
use crate::edge::bodies;
use crate::edge::json::InPath;
use crate::edge::receiving::MinThroughput;

pub(super) async fn blob(
    State(app): State<App>,
    Extension(stores): Extension<Stores>,
    headers: HeaderMap,
    InPath(location): InPath<Location>,
    body: Body,
) -> Result<StatusCode, Problem> {
    let (tenant, hash) = (tenant(&headers)?, location.hash()?);
    receive(&app, &stores, &tenant, Expect::Hash(DigestFunction::Sha256, hash), body).await?;
    Ok(StatusCode::OK)
}

pub(super) async fn raw(
    State(app): State<App>,
    Extension(stores): Extension<Stores>,
    headers: HeaderMap,
    InPath(location): InPath<Location>,
    body: Body,
) -> Result<StatusCode, Problem> {
    let (tenant, key) = (tenant(&headers)?, location.hash()?);
    let stored = receive(&app, &stores, &tenant, Expect::Anything(DigestFunction::Sha256), body).await?;
    let Some(digest) = stored else { return Err(Problem::new(Code::Internal, "the body has no digest")) };
    let raw = RawKey { prefix: location.prefix.as_str().into(), key };
    stores.action_cache.put_raw(&tenant, &raw, digest).await.map_err(|error| problem(&error))?;
    Ok(StatusCode::OK)
}

/// Streams a body into the store. None when the store had it already and did not look at it.
async fn receive(
    app: &App,
    stores: &Stores,
    tenant: &Tenant,
    expect: Expect,
    mut body: Body,
) -> Result<Option<Digest>, Problem> {
    let announced = body.size_hint().exact();
    let max_bytes = stores.blobs.max_blob_bytes();
    if announced.is_some_and(|bytes| bytes > max_bytes) {
        return Err(Problem::new(Code::PayloadTooLarge, format!("a blob has at most {max_bytes} bytes")));
    }
    let begun = stores.blobs.write(tenant, UploadRequest::new(expect)).await;
    let mut writer = match begun.map_err(|error| problem(&error))? {
        Begun::Present => None,
        Begun::Writer(writer) => Some(writer),
    };
    let mut throughput = MinThroughput::new(app.bodies().receiving());
    loop {
        let asked_at = Instant::now();
        let frame = match timeout(throughput.next_timeout(), body.frame()).await {
            Err(_) => return Err(bodies::too_slow()),
            Ok(None) => break,
            Ok(Some(Err(error))) => return Err(bodies::broken_off(&error)),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        throughput.received(data.len(), asked_at.elapsed());
        // What is here already is still received to its end, because many clients read no answer before that.
        if let Some(open) = &mut writer {
            let offset = open.committed();
            if open.write(offset, data).await.map_err(|error| problem(&error))? == Progress::Present {
                writer = None;
            }
        }
    }
    match writer {
        Some(writer) => writer.finish().await.map(Some).map_err(|error| problem(&error)),
        None => Ok(None),
    }
}
