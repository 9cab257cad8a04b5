//! GET and HEAD: reads content by its hash, or an entry by its key.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use blobs::{Digest, DigestFunction, RawKey, Tenant};
use futures_util::stream::try_unfold;

use super::{Location, Stores, problem, tenant};
use crate::app::App;
use crate::convert::problem::{Code, Problem};
use crate::edge::json::InPath;
use crate::edge::paced_stream::at_pace;

/// Up to this size a blob is one piece, of which nothing is held once it is on its way.
const ONE_PIECE_BYTES: u64 = 256 * 1_024;

pub(super) async fn blob(
    State(app): State<App>,
    Extension(stores): Extension<Stores>,
    method: Method,
    headers: HeaderMap,
    InPath(location): InPath<Location>,
) -> Result<Response, Problem> {
    let (tenant, hash) = (tenant(&headers)?, location.hash()?);
    let digest = stores.blobs.find(&tenant, DigestFunction::Sha256, hash).await;
    match digest.map_err(|error| problem(&error))? {
        Some(digest) => answer(&app, &stores, &tenant, digest, &method).await,
        None => Err(Problem::new(Code::NotFound, format!("blob {hash} is not here"))),
    }
}

pub(super) async fn raw(
    State(app): State<App>,
    Extension(stores): Extension<Stores>,
    method: Method,
    headers: HeaderMap,
    InPath(location): InPath<Location>,
) -> Result<Response, Problem> {
    let (tenant, key) = (tenant(&headers)?, location.hash()?);
    let raw = RawKey { prefix: location.prefix.as_str().into(), key };
    let digest = stores.action_cache.get_raw(&tenant, &raw).await.map_err(|error| problem(&error))?;
    match digest {
        Some(digest) => answer(&app, &stores, &tenant, digest, &method).await,
        None => Err(Problem::new(Code::NotFound, format!("nothing stands under {key}"))),
    }
}

fn too_slow() -> blobs::Error {
    let source = std::io::Error::new(std::io::ErrorKind::TimedOut, "the client takes too little");
    blobs::Error::Io { action: "send a blob".to_owned(), source: Arc::new(source) }
}

async fn answer(
    app: &App,
    stores: &Stores,
    tenant: &Tenant,
    digest: Digest,
    method: &Method,
) -> Result<Response, Problem> {
    let body = match *method {
        Method::HEAD => Body::empty(),
        _ => {
            let reader = stores.blobs.read(tenant, digest, 0, None).await.map_err(|error| problem(&error))?;
            let pieces = try_unfold(reader, |mut reader| async move {
                Ok::<_, blobs::Error>(reader.next().await?.map(|piece| (piece, reader)))
            });
            if digest.size <= ONE_PIECE_BYTES {
                Body::from_stream(pieces)
            } else {
                Body::from_stream(at_pace(pieces, app.bodies().receiving().max_stall, too_slow))
            }
        }
    };
    let mut response = (StatusCode::OK, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(digest.size));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}
