//! Reads what a handler left of a request's body, so that the client can read the answer and use its connection again.
//! A connection that cannot be used again is announced as closed.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::timeout;

use crate::edge::fallback::is_grpc;

/// How much of a body that nobody wants is read and dropped, and for how long. A client that is still sending when the
/// connection closes may not see the answer.
const MAX_DISCARD: Discard = Discard { bytes: 64 * 1_024 * 1_024, time: Duration::from_secs(5) };
/// The same after a refusal that tells the client to come back later: enough for most requests.
const MAX_LATER_DISCARD: Discard = Discard { bytes: 1_024 * 1_024, time: Duration::from_secs(1) };
/// The same for a caller who is not known: enough for the body of an honest client whose key is over, and no more.
const MAX_UNKNOWN_DISCARD: Discard = Discard { bytes: 64 * 1_024, time: Duration::from_secs(1) };

/// Serves a request, and reads what was left of its body.
pub(super) async fn discard_unread<F: Future<Output = Response>>(
    request: hyper::Request<Incoming>,
    serve: impl FnOnce(Request) -> F,
) -> Response {
    // A gRPC call may go on for ever, and its stream ends alone.
    if request.body().is_end_stream() || is_grpc(request.headers()) {
        return serve(request.map(Body::new)).await;
    }
    let is_http1 = request.version() <= Version::HTTP_11;
    let mut waits_to_send = request.headers().contains_key(header::EXPECT);
    let unread = Unread::default();
    let returned = unread.clone();
    let request =
        request.map(|body| Body::new(Watched { body: Some(body), was_polled: false, unread: returned }));
    let mut response = serve(request).await;
    let Some((body, was_polled)) = unread.lock().take() else { return response };
    waits_to_send &= !was_polled;
    let is_slow = response.status() == StatusCode::REQUEST_TIMEOUT;
    let max = match response.status() {
        StatusCode::UNAUTHORIZED | StatusCode::MISDIRECTED_REQUEST => MAX_UNKNOWN_DISCARD,
        StatusCode::TOO_MANY_REQUESTS => MAX_LATER_DISCARD,
        _ => MAX_DISCARD,
    };
    // A client that waits to be told to send is told no instead.
    let is_whole = !waits_to_send && !is_slow && discard(body, max).await;
    if !is_whole && is_http1 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Bounds on what is read and dropped.
struct Discard {
    bytes: usize,
    time: Duration,
}

/// Whether the body came to its end within the bounds.
async fn discard(mut body: Incoming, max: Discard) -> bool {
    let all = async {
        let mut discarded = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            discarded += frame.data_ref().map_or(0, Bytes::len);
            if discarded > max.bytes {
                return false;
            }
        }
        true
    };
    timeout(max.time, all).await.unwrap_or(false)
}

/// The rest of a body, and whether anybody began to read it.
#[derive(Clone, Default)]
struct Unread(Arc<Mutex<Option<(Incoming, bool)>>>);

impl Unread {
    fn lock(&self) -> MutexGuard<'_, Option<(Incoming, bool)>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A body that is handed back when its reader drops it before the end.
struct Watched {
    /// None once it ended or failed.
    body: Option<Incoming>,
    was_polled: bool,
    unread: Unread,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.was_polled = true;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let poll = Pin::new(body).poll_frame(context);
        if matches!(poll, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            *self.unread.lock() = Some((body, self.was_polled));
        }
    }
}
