//! PUT: content under its own hash, which is checked, or anything under a key.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use blobs::{Begun, Digest, DigestFunction, Expect, Progress, RawKey, Tenant, UploadRequest};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::{Place, problem, tenant};
use crate::bodies;
use crate::json::InPath;
use crate::problem::{Code, Problem};
use crate::reapi::Content;

/// Longest pause within a body.
const MAX_PAUSE: Duration = Duration::from_secs(10);

pub async fn blob(
    Extension(content): Extension<Content>,
    headers: HeaderMap,
    InPath(place): InPath<Place>,
    body: Body,
) -> Result<StatusCode, Problem> {
    let (tenant, hash) = (tenant(&headers)?, place.hash()?);
    receive(&content, &tenant, Expect::Hash(DigestFunction::Sha256, hash), body).await?;
    Ok(StatusCode::OK)
}

pub async fn raw(
    Extension(content): Extension<Content>,
    headers: HeaderMap,
    InPath(place): InPath<Place>,
    body: Body,
) -> Result<StatusCode, Problem> {
    let (tenant, key) = (tenant(&headers)?, place.hash()?);
    let stored = receive(&content, &tenant, Expect::Anything(DigestFunction::Sha256), body).await?;
    let Some(digest) = stored else { return Err(Problem::new(Code::Internal, "the body has no digest")) };
    let raw = RawKey { prefix: place.prefix.as_str().into(), key };
    content.action_cache.put_raw(&tenant, &raw, digest).await.map_err(|error| problem(&error))?;
    Ok(StatusCode::OK)
}

/// Streams a body into the store. None when the store had it already and did not look at it.
async fn receive(
    content: &Content,
    tenant: &Tenant,
    expect: Expect,
    mut body: Body,
) -> Result<Option<Digest>, Problem> {
    let begun = content.blobs.write(tenant, UploadRequest::new(expect)).await;
    let mut writer = match begun.map_err(|error| problem(&error))? {
        Begun::Present => None,
        Begun::Writer(writer) => Some(writer),
    };
    loop {
        let frame = match timeout(MAX_PAUSE, body.frame()).await {
            Err(_) => return Err(bodies::too_slow()),
            Ok(None) => break,
            Ok(Some(Err(error))) => return Err(bodies::broken_off(&error)),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
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
