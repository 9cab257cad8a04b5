//! Heads that are wrong, too large, too slow or cut off, on each endpoint.

use crate::endpoints::{Endpoint, cache_routes, endpoints, impatient};
use crate::peer::Peer;

/// What a head with something wrong in it is answered, if it is answered at all.
const REFUSALS: [&str; 3] = ["HTTP/1.1 400 ", "HTTP/1.1 408 ", "HTTP/1.1 431 "];

/// Does something to each endpoint, all at once, while another client is served; nothing changes.
async fn on_each<F>(abuse: impl Fn(Peer, Endpoint) -> F)
where
    F: Future<Output = String> + Send + 'static,
{
    let served = impatient().await;
    let endpoints = endpoints(&served).await;
    let position = served.position().await;
    let mut abused = tokio::task::JoinSet::new();
    for endpoint in endpoints.into_iter().chain(cache_routes()) {
        let (name, answer) = (endpoint.name(), abuse(Peer::connect(&served).await, endpoint));
        abused.spawn(async move { (name, answer.await) });
    }
    while let Some(ended) = abused.join_next().await {
        let (name, answer) = ended.unwrap();
        let is_refused = REFUSALS.iter().any(|refusal| answer.starts_with(refusal));
        assert!(answer.is_empty() || is_refused, "{name}: {answer}");
        assert_eq!(served.get("/healthz").await.status, 200);
    }
    assert_eq!(served.position().await, position, "something was recorded");
    served.submit("q").await;
}

#[tokio::test]
async fn malformed_heads_are_refused() {
    on_each(|mut peer, endpoint| async move {
        peer.send(&endpoint.head("no colon here\r\n")).await;
        peer.hear().await
    })
    .await;
}

#[tokio::test]
async fn oversized_heads_are_refused() {
    on_each(|mut peer, endpoint| async move {
        peer.send(&endpoint.head(&format!("x-long: {}\r\n", "x".repeat(100_000)))).await;
        peer.hear().await
    })
    .await;
}

#[tokio::test]
async fn heads_that_come_byte_by_byte_are_cut_off() {
    on_each(|mut peer, endpoint| async move {
        let head = endpoint.head(&format!("x-slow: {}\r\n", "x".repeat(5_000)));
        peer.trickle(&head).await
    })
    .await;
}

#[tokio::test]
async fn half_a_head_is_no_request() {
    on_each(|mut peer, endpoint| async move {
        let head = endpoint.head("");
        peer.send(&head[..head.len() - 4]).await;
        peer.half_close().await;
        peer.hear().await
    })
    .await;
}
