//! GET and HEAD: reads content by its hash, or an entry by its key.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use blobs::{Digest, DigestFunction};
use futures_util::stream::try_unfold;

use super::{Call, problem};
use crate::convert::{Code, Problem};
use crate::edge::paced_stream::at_pace;

/// Up to this size a blob is one piece, of which nothing is held once it is on its way.
const ONE_PIECE_BYTES: u64 = 256 * 1_024;

pub(super) async fn blob(call: Call, method: Method) -> Result<Response, Problem> {
    let hash = call.raw.key;
    let digest = call.blobs.find(&call.tenant, DigestFunction::Sha256, hash).await.map_err(problem)?;
    let digest = digest.ok_or_else(|| Problem::new(Code::NotFound, format!("blob {hash} is not here")))?;
    answer(&call, digest, &method).await
}

pub(super) async fn raw(call: Call, method: Method) -> Result<Response, Problem> {
    let digest = call.action_cache.get_raw(&call.tenant, &call.raw).await.map_err(problem)?;
    call.app.metrics.http_cache_looked(digest.is_some());
    let nothing = || Problem::new(Code::NotFound, format!("nothing stands under {}", call.raw.key));
    answer(&call, digest.ok_or_else(nothing)?, &method).await
}

fn too_slow() -> blobs::Error {
    let source = std::io::Error::new(std::io::ErrorKind::TimedOut, "the client takes too little");
    blobs::Error::Io { action: "send a blob".to_owned(), source: Arc::new(source) }
}

async fn answer(call: &Call, digest: Digest, method: &Method) -> Result<Response, Problem> {
    let body = match *method {
        Method::HEAD => Body::empty(),
        _ => {
            let reader = call.blobs.read(&call.tenant, digest, 0, None).await.map_err(problem)?;
            let pieces = try_unfold(reader, |mut reader| async move {
                Ok::<_, blobs::Error>(reader.next().await?.map(|piece| (piece, reader)))
            });
            if digest.size <= ONE_PIECE_BYTES {
                Body::from_stream(pieces)
            } else {
                Body::from_stream(at_pace(pieces, call.app.bodies.receiving.max_stall, too_slow))
            }
        }
    };
    let mut response = (StatusCode::OK, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(digest.size));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}
