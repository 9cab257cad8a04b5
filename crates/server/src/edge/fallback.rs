//! Answers for what is not there: unknown paths, methods that a path does not have, and gRPC services that are not
//! served, whose clients understand no HTTP problem.

use axum::extract::Request;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use tonic::Status;

use crate::convert::{Code, Problem};

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

pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

fn unimplemented() -> Response {
    Status::unimplemented("this service is not served here").into_http()
}
