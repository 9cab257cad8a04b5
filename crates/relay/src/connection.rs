//! One connection between two nodes: frames in both directions, and a watch over its silence.
//!
//! Every node sends something at least every [`BEAT`]; a connection on which no byte arrives for [`MAX_SILENCE`] is cut, so
//! that a partition is noticed soon. Frames that wait to be sent are bounded by their memory.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep_until};
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};

use crate::frame::MAX_FRAME_BYTES;

/// The time between two signs of life.
pub(crate) const BEAT: Duration = Duration::from_millis(500);
/// The longest silence.
pub(crate) const MAX_SILENCE: Duration = Duration::from_secs(2);
/// Longest time to connect and to greet.
pub(crate) const MAX_HANDSHAKE: Duration = Duration::from_secs(2);
/// Memory for frames that wait to be sent on one connection, in KiB.
const OUTBOX_KIB: usize = 256 << 10;

/// A stream that notes when bytes arrive.
pub(crate) struct Heard<S> {
    stream: S,
    ear: Ear,
}

/// When the other node was heard last. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Ear {
    begun: Instant,
    heard_ms: Arc<AtomicU64>,
}

impl Ear {
    fn new() -> Ear {
        Ear { begun: Instant::now(), heard_ms: Arc::default() }
    }

    fn hear(&self) {
        self.heard_ms.store(self.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn heard_at(&self) -> Instant {
        self.begun + Duration::from_millis(self.heard_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn has_heard_within(&self, limit: Duration) -> bool {
        self.heard_at().elapsed() < limit
    }

    /// Resolves when nothing has been heard for too long.
    pub(crate) async fn silent(&self) {
        loop {
            let deadline = self.heard_at() + MAX_SILENCE;
            if Instant::now() >= deadline {
                return;
            }
            sleep_until(deadline).await;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.ear.hear();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

pub(crate) type Incoming<S> = FramedRead<ReadHalf<Heard<S>>, LengthDelimitedCodec>;
pub(crate) type Outgoing<S> = FramedWrite<WriteHalf<Heard<S>>, LengthDelimitedCodec>;

/// Splits a stream into frames in both directions.
pub(crate) fn framed<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> (Incoming<S>, Outgoing<S>, Ear) {
    let ear = Ear::new();
    let (reader, writer) = tokio::io::split(Heard { stream, ear: ear.clone() });
    let codec = || LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME_BYTES).new_codec();
    (FramedRead::new(reader, codec()), FramedWrite::new(writer, codec()), ear)
}

/// A frame that waits to be sent, with the permit for its memory.
pub(crate) struct Queued {
    frame: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Where frames wait to be sent. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Outbox {
    /// Bounded by the permits. Frames without one are small, and each belongs to a call or a beat of this node itself.
    queue: mpsc::UnboundedSender<Queued>,
    kib: Arc<Semaphore>,
}

impl Outbox {
    pub(crate) fn new() -> (Outbox, mpsc::UnboundedReceiver<Queued>) {
        let (queue, frames) = mpsc::unbounded_channel();
        (Outbox { queue, kib: Arc::new(Semaphore::new(OUTBOX_KIB)) }, frames)
    }

    /// Queues a frame once there is memory for it. False when the connection is gone.
    pub(crate) async fn send(&self, frame: Vec<u8>) -> bool {
        let kib = frame.len().div_ceil(1_024).min(OUTBOX_KIB) as u32;
        let Ok(permit) = self.kib.clone().acquire_many_owned(kib).await else { return false };
        self.queue.send(Queued { frame: frame.into(), _permit: Some(permit) }).is_ok()
    }

    /// Queues a small frame at once.
    pub(crate) fn send_small(&self, frame: Vec<u8>) -> bool {
        self.queue.send(Queued { frame: frame.into(), _permit: None }).is_ok()
    }
}

/// Sends what is queued, until the connection or the queue ends. Frames that are queued together are flushed together.
pub(crate) async fn send_all<S: AsyncRead + AsyncWrite + Unpin>(
    mut outgoing: Outgoing<S>,
    mut frames: mpsc::UnboundedReceiver<Queued>,
) -> io::Result<()> {
    while let Some(queued) = frames.recv().await {
        outgoing.feed(queued.frame).await?;
        while let Ok(queued) = frames.try_recv() {
            outgoing.feed(queued.frame).await?;
        }
        SinkExt::<Bytes>::flush(&mut outgoing).await?;
    }
    Ok(())
}

/// Sends one frame at once.
pub(crate) async fn send_now<S: AsyncRead + AsyncWrite + Unpin>(
    outgoing: &mut Outgoing<S>,
    frame: Vec<u8>,
) -> io::Result<()> {
    outgoing.send(Bytes::from(frame)).await
}

/// The next frame; none when the connection ends.
pub(crate) async fn next_frame<S: AsyncRead + Unpin>(
    incoming: &mut Incoming<S>,
) -> io::Result<Option<Bytes>> {
    Ok(incoming.next().await.transpose()?.map(bytes::BytesMut::freeze))
}
