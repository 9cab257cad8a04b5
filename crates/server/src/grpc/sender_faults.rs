//! Blames the sender for a message that cannot be decoded, for the health service, whose codec is not ours: its answer is
//! INTERNAL, which says that the server is broken.

use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use tonic::{Code, Status};

/// The beginning of the message of a decoding error, percent-encoded as headers have it.
const DECODING_ERROR: &[u8] = b"failed%20to%20decode";

pub(super) async fn blame_sender(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    if begins(headers, "grpc-status", b"13") && begins(headers, "grpc-message", DECODING_ERROR) {
        headers.insert(Status::GRPC_STATUS, HeaderValue::from(Code::InvalidArgument as u16));
    }
    answer
}

fn begins(headers: &HeaderMap, name: &str, value: &[u8]) -> bool {
    headers.get(name).is_some_and(|found| found.as_bytes().starts_with(value))
}
