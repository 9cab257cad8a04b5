//! The body of a long stream, which ends with the key that began it: revoked or expired, a key gets nothing more.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tonic::Status;

type Ended = Pin<Box<dyn Future<Output = ()> + Send>>;

struct RevocableBody {
    body: Body,
    /// Resolves when the key is over; none when the trailers were sent.
    ended: Option<Ended>,
}

/// The response of a stream, cut off with a status once `ended` resolves. One that is over already stays as it is.
pub(super) fn until(response: Response, ended: impl Future<Output = ()> + Send + 'static) -> Response {
    if response.body().is_end_stream() {
        return response;
    }
    response.map(|body| Body::new(RevocableBody { body, ended: Some(Box::pin(ended)) }))
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
        // What feeds the stream learns that nobody reads it any more.
        self.ended = None;
        self.body = Body::empty();
        let mut trailers = HeaderMap::new();
        let status = Status::unauthenticated("the API key was revoked or has expired");
        match status.add_header(&mut trailers) {
            Ok(()) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Err(status) => Poll::Ready(Some(Err(axum::Error::new(status)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
