//! Bodies that are wrong, too large, too slow or cut off, on each endpoint that takes one.

use server::Receiving;
use tokio::task::JoinSet;

use crate::endpoints::{Endpoint, Impatient, endpoints, impatient, impatient_with};
use crate::peer::Peer;
use crate::support::Served;

/// One more than the most that any endpoint takes is far less than this.
const OVERSIZED_BYTES: usize = 17 << 20;

/// Does something to each endpoint that takes a body, all at once, while another client is served; nothing changes.
async fn on_each<F>(abuse: impl Fn(Peer, Endpoint) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    on_each_of(impatient().await, abuse).await;
}

async fn on_each_of<F>(served: Impatient, abuse: impl Fn(Peer, Endpoint) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let endpoints = endpoints(&served).await;
    let position = served.position().await;
    let mut abused = JoinSet::new();
    for endpoint in endpoints.into_iter().filter(|endpoint| endpoint.takes_body) {
        abused.spawn(abuse(Peer::connect(&served).await, endpoint));
    }
    while !abused.is_empty() {
        is_served(&served).await;
        if let Some(ended) = abused.try_join_next() {
            ended.unwrap();
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(served.position().await, position, "something was recorded");
    served.submit("q").await;
}

async fn is_served(served: &Served) {
    assert_eq!(served.get("/v1/queues/q").await.status, 200);
}

/// The status, and the problem in the words of the endpoint.
#[track_caller]
fn is_refused(endpoint: &Endpoint, answer: &str, status: u16, code: &str) {
    let name = endpoint.name();
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {answer}");
    let (field, code) = match (endpoint.is_callback, status) {
        (true, 400) => ("error", "invalid_argument"),
        (true, _) => ("error", code),
        (false, _) => ("code", code),
    };
    assert!(answer.contains(&format!("\"{field}\":\"{code}\"")), "{name}: {answer}");
}

#[tokio::test]
async fn malformed_bodies_are_refused() {
    on_each(|mut peer, endpoint| async move {
        peer.send(&endpoint.head("connection: close\r\ncontent-length: 9\r\n")).await;
        peer.send(b"{\"x\": [1,").await;
        is_refused(&endpoint, &peer.hear().await, 400, "malformed_json");
    })
    .await;
}

#[tokio::test]
async fn a_body_that_is_announced_too_large_is_refused_before_it_comes() {
    on_each(|mut peer, endpoint| async move {
        peer.send(&endpoint.head("expect: 100-continue\r\ncontent-length: 99999999999\r\n")).await;
        is_refused(&endpoint, &peer.hear().await, 413, "payload_too_large");
    })
    .await;
}

/// It does not say how large it is; what is too much is not kept.
#[tokio::test]
async fn a_body_that_turns_out_too_large_is_refused() {
    // All of it has to arrive from all peers at once, on a machine that may be busy.
    let served = impatient_with(Receiving::default()).await;
    on_each_of(served, |mut peer, endpoint| async move {
        peer.send(&endpoint.head("connection: close\r\ntransfer-encoding: chunked\r\n")).await;
        let chunk = [b"100000\r\n".as_slice(), &[b' '; 1 << 20], b"\r\n"].concat();
        for _ in 0..OVERSIZED_BYTES >> 20 {
            peer.send(&chunk).await;
        }
        peer.send(b"0\r\n\r\n").await;
        is_refused(&endpoint, &peer.hear().await, 413, "payload_too_large");
    })
    .await;
}

/// Never a long pause, and never an end.
#[tokio::test]
async fn a_body_that_comes_byte_by_byte_is_cut_off() {
    on_each(|mut peer, endpoint| async move {
        peer.send(&endpoint.head("content-length: 10000\r\n")).await;
        is_refused(&endpoint, &peer.trickle(&[b' '; 10_000]).await, 408, "request_timeout");
    })
    .await;
}

#[tokio::test]
async fn a_body_that_stands_still_is_cut_off() {
    on_each(|mut peer, endpoint| async move {
        peer.send(&endpoint.head("content-length: 100\r\n")).await;
        peer.send(b"{").await;
        is_refused(&endpoint, &peer.hear().await, 408, "request_timeout");
    })
    .await;
}

#[tokio::test]
async fn half_a_body_is_no_request() {
    on_each(|mut peer, endpoint| async move {
        peer.send(&endpoint.head("content-length: 100\r\n")).await;
        peer.send(b"{").await;
        peer.half_close().await;
        let answer = peer.hear().await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{}: {answer}", endpoint.name());
    })
    .await;
}
