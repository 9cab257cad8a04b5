//! Answers for what is not there: unknown paths, methods that a path does not have, and gRPC services that are not
//! served, whose clients understand no HTTP problem.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::convert::{Code, Problem};

/// gRPC's code for a service or method that is not there.
const GRPC_UNIMPLEMENTED: &str = "12";

pub(crate) async fn not_found(request: Request) -> Response {
    if is_grpc(request.headers()) {
        return unimplemented();
    }
    let detail = format!("nothing is served at {}; see /openapi.json", request.uri().path());
    Problem::new(Code::NotFound, detail).into_response()
}

pub(crate) async fn method_not_allowed(request: Request) -> Response {
    if is_grpc(request.headers()) {
        return unimplemented();
    }
    let detail = format!("{} has no method {}", request.uri().path(), request.method());
    Problem::new(Code::MethodNotAllowed, detail).into_response()
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// An answer of headers alone, which is how gRPC says no.
fn unimplemented() -> Response {
    let mut response = StatusCode::OK.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static(GRPC_UNIMPLEMENTED));
    headers.insert("grpc-message", HeaderValue::from_static("this service is not served here"));
    response
}
