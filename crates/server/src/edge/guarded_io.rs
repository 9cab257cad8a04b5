//! A connection with the time limits that the library does not have: for the first bytes, from which the protocol is
//! detected, and for a peer that does not read its answers.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::{Sleep, sleep};

/// What an HTTP/2 client sends first. A client that stops within it could be either protocol.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) struct Guarded<T> {
    io: T,
    max_stall: Duration,
    /// Runs until the protocol is known.
    opening: Option<Pin<Box<Sleep>>>,
    /// How much of the preface was read.
    preface: usize,
    /// Runs while the peer takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T> Guarded<T> {
    pub(super) fn new(io: T, max_opening: Duration, max_stall: Duration) -> Guarded<T> {
        Guarded { io, max_stall, opening: Some(Box::pin(sleep(max_opening))), preface: 0, stalled: None }
    }

    /// Looks at what was read until it is known which protocol this is.
    fn look_at(&mut self, read: &[u8]) {
        let expected = &PREFACE[self.preface..];
        let len = read.len().min(expected.len());
        if read.is_empty() || read[..len] != expected[..len] || len == expected.len() {
            self.opening = None;
        } else {
            self.preface += len;
        }
    }

    /// Ends the connection when a write has been pending for too long.
    fn watch<R>(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if poll.is_ready() {
            self.stalled = None;
            return poll;
        }
        let max_stall = self.max_stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(max_stall)));
        match stalled.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(Err(timed_out("the peer takes no data"))),
        }
    }
}

impl<T: Read + Unpin> Read for Guarded<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(opening) = &mut this.opening else {
            return Pin::new(&mut this.io).poll_read(context, buffer);
        };
        let mut first = [0; PREFACE.len()];
        let len = buffer.remaining().min(first.len());
        let mut read = hyper::rt::ReadBuf::new(&mut first[..len]);
        match Pin::new(&mut this.io).poll_read(context, read.unfilled()) {
            Poll::Pending => match opening.as_mut().poll(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(()) => Poll::Ready(Err(timed_out("the peer did not say what it wants"))),
            },
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => {
                buffer.put_slice(read.filled());
                let bytes = read.filled().len();
                this.look_at(&first[..bytes]);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<T: Write + Unpin> Write for Guarded<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.io).poll_write(context, data);
        this.watch(context, poll)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.io).poll_flush(context);
        this.watch(context, poll)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.io).poll_shutdown(context);
        this.watch(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.io).poll_write_vectored(context, data);
        this.watch(context, poll)
    }
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const OPENING: Duration = Duration::from_secs(30);
    const STALL: Duration = Duration::from_secs(40);

    fn guarded() -> (Guarded<TokioIo<DuplexStream>>, DuplexStream) {
        let (ours, theirs) = duplex(1_024);
        (Guarded::new(TokioIo::new(ours), OPENING, STALL), theirs)
    }

    async fn read(io: &mut Guarded<TokioIo<DuplexStream>>) -> io::Result<Vec<u8>> {
        let mut bytes = [0; 64];
        let mut buffer = hyper::rt::ReadBuf::new(&mut bytes);
        poll_fn(|context| Pin::new(&mut *io).poll_read(context, buffer.unfilled())).await?;
        Ok(buffer.filled().to_vec())
    }

    #[tokio::test(start_paused = true)]
    async fn n10_a_peer_that_says_nothing_is_cut_off() {
        let (mut io, _theirs) = guarded();
        assert_eq!(read(&mut io).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn n10_a_peer_that_stops_within_the_preface_is_cut_off() {
        let (mut io, mut theirs) = guarded();
        theirs.write_all(&PREFACE[..3]).await.unwrap();
        assert_eq!(read(&mut io).await.unwrap(), &PREFACE[..3]);
        theirs.write_all(&PREFACE[3..9]).await.unwrap();
        assert_eq!(read(&mut io).await.unwrap(), &PREFACE[3..9]);
        assert_eq!(read(&mut io).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_whose_protocol_is_known_is_left_to_the_library() {
        for start in [&b"GET / HTTP/1.1"[..], b"PUT", PREFACE] {
            let (mut io, mut theirs) = guarded();
            theirs.write_all(start).await.unwrap();
            assert_eq!(read(&mut io).await.unwrap(), start);
            let silence = tokio::time::timeout(OPENING * 10, read(&mut io)).await;
            assert!(silence.is_err(), "{}", String::from_utf8_lossy(start));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn n9_a_peer_that_takes_nothing_is_cut_off() {
        let (mut io, _theirs) = guarded();
        let data = [0; 700];
        let mut written = 0;
        let error = loop {
            match poll_fn(|context| Pin::new(&mut io).poll_write(context, &data)).await {
                Ok(len) => written += len,
                Err(error) => break error,
            }
        };
        assert_eq!((written, error.kind()), (1_024, io::ErrorKind::TimedOut));
    }
}
