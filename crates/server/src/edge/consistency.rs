//! Reads that may be behind the owner, for clients that ask for them, and the position that answers carry in a cluster.

use std::convert::Infallible;

use authority::Position;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use coordinator::{Consistency, Handle};

use crate::app::App;
use crate::convert::{Code, Problem};

const CONSISTENCY: HeaderName = HeaderName::from_static("lessor-consistency");
const MIN_POSITION: HeaderName = HeaderName::from_static("lessor-min-position");
/// At or after everything that an answer rests on.
const POSITION: HeaderName = HeaderName::from_static("lessor-position");

/// The handle for the reads of a request, with the consistency that its headers ask for.
pub(crate) struct Reads(pub Handle);

impl FromRequestParts<App> for Reads {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Reads, Problem> {
        Ok(Reads(app.handle.with_consistency(consistency(&parts.headers)?)))
    }
}

/// Says up to which position the ledger was known when a request was answered, so that a later read can ask for it.
pub(crate) async fn layer(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Result<Response, Infallible> {
    let mut response = next.run(request).await;
    response.headers_mut().insert(POSITION, HeaderValue::from(app.handle.position().0));
    Ok(response)
}

fn consistency(headers: &HeaderMap) -> Result<Consistency, Problem> {
    let min = match headers.get(MIN_POSITION) {
        None => Position::ZERO,
        Some(value) => {
            let position = value.to_str().ok().and_then(|text| text.parse().ok()).map(Position);
            position.ok_or_else(|| {
                refused(&MIN_POSITION, "is not a position, a number of an answer's lessor-position")
            })?
        }
    };
    match headers.get(CONSISTENCY).map(HeaderValue::as_bytes) {
        None | Some(b"strong") => Ok(Consistency::Strong),
        Some(b"stale") => Ok(Consistency::Stale { min }),
        Some(_) => Err(refused(&CONSISTENCY, "is strong or stale")),
    }
}

fn refused(header: &HeaderName, what: &str) -> Problem {
    let field = Some(header.to_string());
    Problem { field, ..Problem::new(Code::InvalidField, format!("{header}: {what}")) }
}
