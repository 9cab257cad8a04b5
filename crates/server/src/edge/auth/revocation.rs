//! A call that ends with the key that began it: revoked or expired, a key waits for nothing more and moves no more data.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use tonic::Status;

use super::identity::Identity;
use crate::app::App;
use crate::convert::{Code, Problem};
use crate::edge::permissions::{Call, GRPC};

/// Resolves when the credential is over.
type Ended = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The end of the credential of a call that may take long.
pub(super) struct Revocation {
    app: App,
    identity: Arc<Identity>,
    call: &'static Call,
    /// Watched from when the call has to wait.
    ended: Option<Ended>,
}

impl Revocation {
    pub(super) fn new(app: App, identity: Arc<Identity>, call: &'static Call) -> Revocation {
        Revocation { app, identity, call, ended: None }
    }

    /// Polls a call, which is refused instead once the credential is over.
    pub(super) fn poll_call(
        &mut self,
        call: Pin<&mut impl Future<Output = Result<Response, Infallible>>>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response, Infallible>> {
        // The credential comes first: nothing that happened after its end reaches its holder.
        if self.ended.is_some() && self.ended().as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(self.refused()));
        }
        if let Poll::Ready(Ok(response)) = call.poll(context) {
            return Poll::Ready(Ok(self.until_ended(response)));
        }
        if self.ended.is_none() && self.ended().as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(self.refused()));
        }
        Poll::Pending
    }

    fn ended(&mut self) -> &mut Ended {
        let Revocation { app, identity, .. } = self;
        self.ended.get_or_insert_with(|| Box::pin(app.keys.ended(identity, app.handle.now())))
    }

    fn refused(&self) -> Response {
        if self.is_grpc() { Status::from(refusal()).into_http() } else { refusal().into_response() }
    }

    fn is_grpc(&self) -> bool {
        self.call.method == GRPC
    }

    /// The response, cut off at the end of the credential if it may take long to send.
    fn until_ended(&mut self, response: Response) -> Response {
        if !self.call.is_streamed || response.body().is_end_stream() {
            return response;
        }
        self.ended();
        let (ended, is_grpc) = (self.ended.take(), self.is_grpc());
        response.map(|body| Body::new(RevocableBody { body, ended, is_grpc }))
    }
}

fn refusal() -> Problem {
    let detail = "the credential of this call was revoked or has expired";
    Problem::new(Code::Unauthenticated, detail)
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
