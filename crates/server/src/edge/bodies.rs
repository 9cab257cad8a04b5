//! Receives bodies: bounded in size before they are buffered, in time while they arrive, and in memory over all of
//! them together.

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::convert::{Code, Problem};
use crate::edge::receiving::Receiving;

/// Most memory for bodies that are being received, over all connections.
const MAX_BODIES_KIB: usize = 256 * 1_024;

pub(crate) struct Bodies {
    capacity: Arc<Semaphore>,
    pub(crate) receiving: Receiving,
}

/// A body that was received, with its share of the memory for bodies.
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Bodies {
    pub(crate) fn new(receiving: Receiving) -> Bodies {
        Bodies { capacity: Arc::new(Semaphore::new(MAX_BODIES_KIB)), receiving }
    }

    /// Takes capacity for more bytes of a body; false when there is none. It must be given back.
    pub(crate) fn take(&self, held_bytes: usize, more_bytes: usize) -> bool {
        self.capacity.try_acquire_many(more_kib(held_bytes, more_bytes)).map(|permit| permit.forget()).is_ok()
    }

    /// Gives back the capacity of a body.
    pub(crate) fn give_back(&self, held_bytes: usize) {
        self.capacity.add_permits(kib(held_bytes) as usize);
    }

    pub(crate) async fn receive(
        &self,
        headers: &HeaderMap,
        body: Body,
        max_bytes: usize,
    ) -> Result<Received, Problem> {
        let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let announced = announced.and_then(|length| length.parse::<u64>().ok());
        if announced.is_some_and(|length| length > max_bytes as u64) {
            return Err(too_large(max_bytes));
        }
        self.collect(body, max_bytes).await
    }

    async fn collect(&self, mut body: Body, max_bytes: usize) -> Result<Received, Problem> {
        let mut received = Vec::new();
        let mut permit: Option<OwnedSemaphorePermit> = None;
        let mut now = Instant::now();
        let end = now + self.receiving.max_body;
        loop {
            let frame = match timeout_at(end.min(now + self.receiving.max_pause), body.frame()).await {
                Err(_) => return Err(too_slow()),
                Ok(None) => return Ok(Received { bytes: received, _permit: permit }),
                Ok(Some(Err(error))) => return Err(broken_off(&error)),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            if received.len() + data.len() > max_bytes {
                return Err(too_large(max_bytes));
            }
            let Ok(more) = self.capacity.clone().try_acquire_many_owned(more_kib(received.len(), data.len()))
            else {
                let detail = "too many large requests are being received at once";
                return Err(Problem::new(Code::Overloaded, detail));
            };
            match &mut permit {
                Some(permit) => permit.merge(more),
                None => permit = Some(more),
            }
            received.extend_from_slice(&data);
            if body.is_end_stream() {
                return Ok(Received { bytes: received, _permit: permit });
            }
            now = Instant::now();
        }
    }
}

/// The capacity that one body takes.
fn kib(bytes: usize) -> u32 {
    bytes.div_ceil(1_024) as u32
}

/// The capacity that a body takes beyond what it has. Only the sum is rounded up, so tiny pieces cost no more.
fn more_kib(held_bytes: usize, more_bytes: usize) -> u32 {
    kib(held_bytes + more_bytes) - kib(held_bytes)
}

fn too_large(max_bytes: usize) -> Problem {
    Problem::new(Code::PayloadTooLarge, format!("the body has more than {max_bytes} bytes"))
}

pub(crate) fn too_slow() -> Problem {
    Problem::new(Code::RequestTimeout, "the body came too slowly")
}

pub(crate) fn broken_off(error: &axum::Error) -> Problem {
    Problem::new(Code::MalformedJson, format!("the body broke off: {error}"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use hyper::body::{Bytes, Frame};
    use tokio::time::{Interval, interval_at};

    use super::*;

    /// A body that sends the same piece again and again, with a pause before each.
    struct Trickle {
        piece: Bytes,
        pieces: usize,
        pauses: Interval,
    }

    fn trickle(piece: &'static [u8], pieces: usize, pause: Duration) -> Body {
        let pauses = interval_at(Instant::now() + pause, pause);
        Body::new(Trickle { piece: Bytes::from_static(piece), pieces, pauses })
    }

    impl HttpBody for Trickle {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.pieces == 0 {
                return Poll::Ready(None);
            }
            if self.pauses.poll_tick(context).is_pending() {
                return Poll::Pending;
            }
            self.pieces -= 1;
            Poll::Ready(Some(Ok(Frame::data(self.piece.clone()))))
        }
    }

    struct BreaksOff;

    impl HttpBody for BreaksOff {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            Poll::Ready(Some(Err(std::io::Error::other("gone"))))
        }
    }

    async fn receive(body: Body, max_bytes: usize) -> Result<Vec<u8>, Code> {
        let received = Bodies::new(Receiving::default()).receive(&HeaderMap::new(), body, max_bytes).await;
        received.map(|received| received.bytes).map_err(|problem| problem.code)
    }

    #[tokio::test(start_paused = true)]
    async fn a5_a_body_that_pauses_too_long_is_cut() {
        assert_eq!(
            receive(trickle(b"x", 2, Receiving::default().max_pause * 2), 100).await,
            Err(Code::RequestTimeout)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a5_a_body_that_trickles_on_and_on_is_cut() {
        let began = Instant::now();
        let trickle = trickle(b"x", 1_000, Duration::from_secs(1));
        assert_eq!(receive(trickle, 10_000).await, Err(Code::RequestTimeout));
        assert!(began.elapsed() <= Receiving::default().max_body + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_within_the_limits_is_received() {
        assert_eq!(receive(trickle(b"x", 5, Duration::from_secs(1)), 100).await, Ok(b"xxxxx".to_vec()));
    }

    #[tokio::test(start_paused = true)]
    async fn i3_a_body_without_a_length_is_cut_at_the_limit() {
        let body = trickle(b"0123456789", 11, Duration::from_millis(1));
        assert_eq!(receive(body, 100).await, Err(Code::PayloadTooLarge));
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_refused() {
        assert_eq!(receive(Body::new(BreaksOff), 100).await, Err(Code::MalformedJson));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_in_tiny_pieces_takes_no_more_room_than_its_bytes() {
        let bodies = Bodies::new(Receiving::default());
        let _others = bodies.capacity.try_acquire_many(MAX_BODIES_KIB as u32 - 2).unwrap();
        let tiny = trickle(b"x", 2_048, Duration::from_millis(1));
        assert_eq!(bodies.receive(&HeaderMap::new(), tiny, 10_000).await.ok().unwrap().bytes.len(), 2_048);
        assert_eq!(bodies.capacity.available_permits(), 2, "the room is given back");
        let beyond = trickle(b"x", 2_049, Duration::from_millis(1));
        let refused = bodies.receive(&HeaderMap::new(), beyond, 10_000).await.err().unwrap();
        assert_eq!(refused.code, Code::Overloaded);
    }

    #[tokio::test]
    async fn all_bodies_together_are_bounded() {
        let bodies = Bodies::new(Receiving::default());
        let taken = bodies.capacity.try_acquire_many(MAX_BODIES_KIB as u32).unwrap();
        let refused = bodies.receive(&HeaderMap::new(), Body::from("x"), 100).await.err().unwrap();
        assert_eq!(refused.code, Code::Overloaded);
        drop(taken);
        assert!(bodies.receive(&HeaderMap::new(), Body::from("x"), 100).await.is_ok());
        assert_eq!(bodies.capacity.available_permits(), MAX_BODIES_KIB, "the room is given back");
    }
}
