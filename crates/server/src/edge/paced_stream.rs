//! Streams responses to clients that may stop reading (A5). A piece waits for its client for a limited time: a connection
//! that is alive says nothing about each of its streams.

use std::time::Duration;

use futures_util::stream::{BoxStream, Stream, StreamExt, unfold};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Pieces that are buffered for the client.
const BUFFERED: usize = 1;

/// The same stream, which ends with the status of `too_slow` when its client reads nothing for `max_stall`.
pub(crate) fn at_pace<T: Send + 'static, E: Send + 'static>(
    pieces: impl Stream<Item = Result<T, E>> + Send + 'static,
    max_stall: Duration,
    too_slow: fn() -> E,
) -> BoxStream<'static, Result<T, E>> {
    let (to_client, from_here) = mpsc::channel(BUFFERED);
    tokio::spawn(async move {
        let mut pieces = std::pin::pin!(pieces);
        loop {
            let piece = pieces.next().await;
            let is_last = !matches!(piece, Some(Ok(_)));
            match timeout(max_stall, to_client.send(piece)).await {
                Ok(Ok(())) if !is_last => {}
                _ => return,
            }
        }
    });
    unfold(Some(from_here), move |from_here| async move {
        let mut from_here = from_here?;
        match from_here.recv().await {
            Some(Some(Ok(piece))) => Some((Ok(piece), Some(from_here))),
            Some(Some(Err(error))) => Some((Err(error), None)),
            // The stream has ended.
            Some(None) => None,
            None => Some((Err(too_slow()), None)),
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use futures_util::stream::iter;

    use super::*;

    const STALL: Duration = Duration::from_secs(30);

    fn paced(count: u32) -> BoxStream<'static, Result<u32, &'static str>> {
        at_pace(iter((0..count).map(Ok)), STALL, || "too slow")
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_takes_the_pieces_gets_them_all() {
        let all: Vec<_> = paced(100).collect().await;
        assert_eq!(all, (0..100).map(Ok).collect::<Vec<_>>());
        let failed = at_pace(iter([Ok(1), Err("broken")]), STALL, || "too slow");
        assert_eq!(failed.collect::<Vec<_>>().await, [Ok(1), Err("broken")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a5_a_client_that_takes_nothing_is_let_go_and_told() {
        let mut slow = paced(100);
        assert_eq!(slow.next().await, Some(Ok(0)));
        let silence = timeout(STALL * 3, std::future::pending::<()>()).await;
        assert!(silence.is_err());
        let rest: Vec<_> = slow.collect().await;
        assert_eq!(rest.last(), Some(&Err("too slow")));
        assert!(rest.len() < 5, "{}", rest.len());
    }
}
