//! A call that ends with the key that began it: revoked or expired, a key waits for nothing more and moves no more data.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use tonic::Status;

use crate::convert::{Code, Problem};

/// Resolves when the key is over.
pub(super) type Ended = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs a call until it is answered, and until its answer is sent; dropped with a refusal once `ended` resolves.
pub(super) async fn run(call: impl Future<Output = Response>, mut ended: Ended, is_grpc: bool) -> Response {
    tokio::select! {
        biased;
        () = &mut ended => {
            if is_grpc { Status::from(refusal()).into_http() } else { refusal().into_response() }
        }
        response = call => until(response, ended, is_grpc),
    }
}

fn refusal() -> Problem {
    let detail = "the credential of this call was revoked or has expired";
    Problem::new(Code::Unauthenticated, detail)
}

/// The response, cut off once `ended` resolves. One that is over already stays as it is.
fn until(response: Response, ended: Ended, is_grpc: bool) -> Response {
    if response.body().is_end_stream() {
        return response;
    }
    response.map(|body| Body::new(RevocableBody { body, ended: Some(ended), is_grpc }))
}

struct RevocableBody {
    body: Body,
    /// None once the body was cut off.
    ended: Option<Ended>,
    is_grpc: bool,
}

impl HttpBody for RevocableBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(ended) = &mut self.ended else { return Poll::Ready(None) };
        if ended.as_mut().poll(context).is_pending() {
            return Pin::new(&mut self.body).poll_frame(context);
        }
        // What feeds the body learns that nobody reads it any more.
        self.ended = None;
        self.body = Body::empty();
        let status = Status::from(refusal());
        let mut trailers = HeaderMap::new();
        // Without trailers, only an error says that the body is not whole.
        let told = if self.is_grpc { status.add_header(&mut trailers) } else { Err(status) };
        Poll::Ready(Some(told.map(|()| Frame::trailers(trailers)).map_err(axum::Error::new)))
    }

    fn is_end_stream(&self) -> bool {
        self.ended.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
