//! PUT: stores content under its hash, which is checked, or any bytes under a key.

use axum::body::Body;
use axum::http::StatusCode;
use blobs::{Begun, Digest, DigestFunction, Expect, Progress, UploadRequest};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::time::{Instant, timeout};

use super::{Call, problem};
use crate::convert::{Code, Problem};
use crate::edge::bodies;
use crate::edge::receiving::MinThroughput;

pub(super) async fn blob(call: Call, body: Body) -> Result<StatusCode, Problem> {
    receive(&call, Expect::Hash(DigestFunction::Sha256, call.raw.key), body).await?;
    Ok(StatusCode::OK)
}

pub(super) async fn raw(call: Call, body: Body) -> Result<StatusCode, Problem> {
    if !call.may_update {
        return Err(Problem::updates_disabled());
    }
    let stored = receive(&call, Expect::Anything(DigestFunction::Sha256), body).await?;
    let Some(digest) = stored else { return Err(Problem::new(Code::Internal, "the body has no digest")) };
    call.action_cache.put_raw(&call.tenant, &call.raw, digest).await.map_err(problem)?;
    Ok(StatusCode::OK)
}

/// Streams a body into the store. None when the store had it already and did not look at it.
async fn receive(call: &Call, expect: Expect, mut body: Body) -> Result<Option<Digest>, Problem> {
    let announced = body.size_hint().exact();
    let max_bytes = call.blobs.max_blob_bytes();
    if announced.is_some_and(|bytes| bytes > max_bytes) {
        return Err(Problem::new(Code::PayloadTooLarge, format!("a blob has at most {max_bytes} bytes")));
    }
    let begun = call.blobs.write(&call.tenant, UploadRequest::new(expect)).await;
    let mut writer = match begun.map_err(problem)? {
        Begun::Present => None,
        Begun::Writer(writer) => Some(writer),
    };
    let mut throughput = MinThroughput::new(call.app.bodies.receiving);
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
            if open.write(offset, data).await.map_err(problem)? == Progress::Present {
                writer = None;
            }
        }
    }
    match writer {
        Some(writer) => writer.finish().await.map(Some).map_err(problem),
        None => Ok(None),
    }
}
