//! Receives bodies: bounded in size before they are buffered, in time while they arrive, and in memory over all of
//! them together.

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use crate::convert::{Code, Problem};
use crate::edge::limits::{PoolPermit, SharedPool};
use crate::edge::receiving::Receiving;

/// Most memory for bodies that are being received, over all connections; tenants share it.
const MAX_BODIES_KIB: usize = 256 * 1_024;

pub(crate) struct Bodies {
    capacity: Arc<SharedPool>,
    pub(crate) receiving: Receiving,
}

/// A body that was received, with its share of the memory for bodies.
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    _memory: BodyMemory,
}

/// The memory that one body takes of what there is for all. Only the sum of its pieces is rounded up, so tiny ones cost no more.
pub(crate) struct BodyMemory {
    permit: PoolPermit,
    bytes: usize,
}

impl BodyMemory {
    /// Takes memory for more bytes of the body; false when there is none.
    pub(crate) fn take(&mut self, more_bytes: usize) -> bool {
        let taken = self.permit.grow(kib(self.bytes + more_bytes) - kib(self.bytes));
        if taken {
            self.bytes += more_bytes;
        }
        taken
    }

    /// What arrived so far was read and is gone.
    pub(crate) fn give_back(&mut self) {
        self.permit.give_back();
        self.bytes = 0;
    }
}

impl Bodies {
    pub(crate) fn new(receiving: Receiving) -> Bodies {
        Bodies { capacity: SharedPool::new(MAX_BODIES_KIB), receiving }
    }

    /// The memory of a body of this tenant, nothing so far.
    pub(crate) fn memory(&self, tenant: &Arc<str>) -> BodyMemory {
        BodyMemory { permit: self.capacity.nothing(tenant), bytes: 0 }
    }

    pub(crate) async fn receive(
        &self,
        tenant: &Arc<str>,
        headers: &HeaderMap,
        body: Body,
        max_bytes: usize,
    ) -> Result<Received, Problem> {
        let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let announced = announced.and_then(|length| length.parse::<u64>().ok());
        if announced.is_some_and(|length| length > max_bytes as u64) {
            return Err(too_large(max_bytes));
        }
        self.collect(self.memory(tenant), body, max_bytes).await
    }

    async fn collect(
        &self,
        mut memory: BodyMemory,
        mut body: Body,
        max_bytes: usize,
    ) -> Result<Received, Problem> {
        let mut received = Vec::new();
        let mut now = Instant::now();
        let end = now + self.receiving.max_body;
        loop {
            let frame = match timeout_at(end.min(now + self.receiving.max_pause), body.frame()).await {
                Err(_) => return Err(too_slow()),
                Ok(None) => return Ok(Received { bytes: received, _memory: memory }),
                Ok(Some(Err(error))) => return Err(broken_off(&error)),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            if received.len() + data.len() > max_bytes {
                return Err(too_large(max_bytes));
            }
            if !memory.take(data.len()) {
                let detail = "too many large requests are being received at once";
                return Err(Problem::new(Code::Overloaded, detail));
            }
            received.extend_from_slice(&data);
            if body.is_end_stream() {
                return Ok(Received { bytes: received, _memory: memory });
            }
            now = Instant::now();
        }
    }
}

fn kib(bytes: usize) -> usize {
    bytes.div_ceil(1_024)
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

    async fn bodies_receive(bodies: &Bodies, body: Body, max_bytes: usize) -> Result<Received, Problem> {
        bodies.receive(&Arc::from("t"), &HeaderMap::new(), body, max_bytes).await
    }

    async fn receive(body: Body, max_bytes: usize) -> Result<Vec<u8>, Code> {
        let received = bodies_receive(&Bodies::new(Receiving::default()), body, max_bytes).await;
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
        let mut others = bodies.memory(&Arc::from("others"));
        assert!(others.take((MAX_BODIES_KIB - 2) * 1_024));
        for _ in 0..2 {
            let tiny = trickle(b"x", 2_048, Duration::from_millis(1));
            assert_eq!(bodies_receive(&bodies, tiny, 10_000).await.ok().unwrap().bytes.len(), 2_048);
        }
        let beyond = trickle(b"x", 2_049, Duration::from_millis(1));
        let refused = bodies_receive(&bodies, beyond, 10_000).await.err().unwrap();
        assert_eq!(refused.code, Code::Overloaded);
    }

    #[tokio::test]
    async fn all_bodies_together_are_bounded() {
        let bodies = Bodies::new(Receiving::default());
        let mut greedy = bodies.memory(&Arc::from("t"));
        while greedy.take(1_024 * 1_024) {}
        let refused = bodies_receive(&bodies, Body::from("x"), 100).await.err().unwrap();
        assert_eq!(refused.code, Code::Overloaded);
        let other = Arc::from("other");
        assert!(bodies.receive(&other, &HeaderMap::new(), Body::from("x"), 100).await.is_ok());
        let mut others = bodies.memory(&other);
        while others.take(1_024) {}
        greedy.give_back();
        assert!(bodies_receive(&bodies, Body::from("x"), 100).await.is_ok());
    }
}
