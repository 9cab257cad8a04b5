//! The cache over HTTP: bodies that are too slow, too large or cut off, on each route (A5, I3). Nothing comes of them.

use std::fmt::Write;

use tokio::task::JoinSet;

use crate::endpoints::{Endpoint, cache_routes, impatient};
use crate::peer::Peer;
use crate::support::Served;

/// Does something to each route that takes a body, all at once, while another client is served.
async fn on_each<F>(abuse: impl Fn(Peer, Endpoint) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let served = impatient().await;
    let mut abused = JoinSet::new();
    for route in cache_routes().into_iter().filter(|route| route.takes_body) {
        abused.spawn(abuse(Peer::connect(&served).await, route));
    }
    while let Some(ended) = abused.join_next().await {
        ended.unwrap();
        assert_eq!(served.get("/status").await.status, 200);
    }
    nothing_came(&served).await;
}

async fn nothing_came(served: &Served) {
    for route in cache_routes().into_iter().filter(|route| route.takes_body) {
        assert_eq!(served.get(&route.path).await.status, 404, "{}", route.name());
    }
}

fn is_refused(route: &Endpoint, answer: &str, status: u16) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{}: {answer}", route.name());
}

#[tokio::test]
async fn a5_a_blob_that_comes_byte_by_byte_is_cut_off() {
    on_each(|mut peer, route| async move {
        peer.send(&route.head("content-length: 10000\r\n")).await;
        is_refused(&route, &peer.trickle(&[b'x'; 10_000]).await, 408);
    })
    .await;
}

#[tokio::test]
async fn a5_a_blob_that_stands_still_is_cut_off() {
    on_each(|mut peer, route| async move {
        peer.send(&route.head("content-length: 100\r\n")).await;
        peer.send(b"x").await;
        is_refused(&route, &peer.hear().await, 408);
    })
    .await;
}

#[tokio::test]
async fn half_a_blob_is_no_blob() {
    on_each(|mut peer, route| async move {
        peer.send(&route.head("content-length: 100\r\n")).await;
        peer.send(b"x").await;
        peer.half_close().await;
        let answer = peer.hear().await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{}: {answer}", route.name());
    })
    .await;
}

#[tokio::test]
async fn i3_a_blob_that_is_announced_too_large_is_refused_before_it_comes() {
    on_each(|mut peer, route| async move {
        let mut lines = String::new();
        let _ =
            write!(lines, "expect: 100-continue\r\nconnection: close\r\ncontent-length: {}\r\n", 1_u64 << 50);
        peer.send(&route.head(&lines)).await;
        is_refused(&route, &peer.hear().await, 413);
    })
    .await;
}

/// What is put under its own hash must have it.
#[tokio::test]
async fn i5_content_that_is_not_what_its_path_says_is_refused() {
    on_each(|mut peer, route| async move {
        if route.path.contains("/ac/") {
            return;
        }
        peer.send(&route.head("connection: close\r\ncontent-length: 5\r\n")).await;
        peer.send(b"a lie").await;
        is_refused(&route, &peer.hear().await, 400);
    })
    .await;
}
