//! GET and HEAD: content by its hash, or what stands under a key.

use axum::Extension;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use blobs::{Digest, DigestFunction, RawKey, Tenant};
use futures_util::stream::try_unfold;

use super::{Place, problem, tenant};
use crate::json::InPath;
use crate::problem::{Code, Problem};
use crate::reapi::Content;

pub async fn blob(
    Extension(content): Extension<Content>,
    method: Method,
    headers: HeaderMap,
    InPath(place): InPath<Place>,
) -> Result<Response, Problem> {
    let (tenant, hash) = (tenant(&headers)?, place.hash()?);
    let digest = content.blobs.find(&tenant, DigestFunction::Sha256, hash).await;
    match digest.map_err(|error| problem(&error))? {
        Some(digest) => answer(&content, &tenant, digest, &method).await,
        None => Err(Problem::new(Code::NotFound, format!("blob {hash} is not here"))),
    }
}

pub async fn raw(
    Extension(content): Extension<Content>,
    method: Method,
    headers: HeaderMap,
    InPath(place): InPath<Place>,
) -> Result<Response, Problem> {
    let (tenant, key) = (tenant(&headers)?, place.hash()?);
    let raw = RawKey { prefix: place.prefix.as_str().into(), key };
    let digest = content.action_cache.get_raw(&tenant, &raw).await.map_err(|error| problem(&error))?;
    match digest {
        Some(digest) => answer(&content, &tenant, digest, &method).await,
        None => Err(Problem::new(Code::NotFound, format!("nothing stands under {key}"))),
    }
}

async fn answer(
    content: &Content,
    tenant: &Tenant,
    digest: Digest,
    method: &Method,
) -> Result<Response, Problem> {
    let body = match *method {
        Method::HEAD => Body::empty(),
        _ => {
            let reader =
                content.blobs.read(tenant, digest, 0, None).await.map_err(|error| problem(&error))?;
            let pieces = try_unfold(reader, |mut reader| async move {
                Ok::<_, blobs::Error>(reader.next().await?.map(|piece| (piece, reader)))
            });
            Body::from_stream(pieces)
        }
    };
    let mut response = (StatusCode::OK, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(digest.size));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}
