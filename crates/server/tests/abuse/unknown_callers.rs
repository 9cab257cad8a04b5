//! Bounds on callers without a credential: little of a body is read for them, and a watch of the health service ends.

use tokio_stream::StreamExt;
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::endpoints::impatient;
use crate::guarded::Guarded;
use crate::keyed::in_time;
use crate::peer::Peer;

fn head(content_length: usize) -> Vec<u8> {
    format!("POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: {content_length}\r\n\r\n")
        .into_bytes()
}

/// 64 MiB were read and dropped for anyone, for up to five seconds, before the refusal was sent.
#[tokio::test]
async fn of_a_body_without_a_credential_only_a_little_is_read() {
    let guarded = Guarded::start().await;
    for sent in [128 << 10, 1] {
        let mut peer = Peer::connect(&guarded.served).await;
        peer.send(&head(64 << 20)).await;
        peer.send(&vec![b'x'; sent]).await;
        let answer = peer.hear_head().await.to_ascii_lowercase();
        assert!(answer.starts_with("http/1.1 401 "), "{answer}");
        assert!(answer.contains("connection: close"), "{sent} bytes of the body came: {answer}");
    }
    let mut peer = Peer::connect(&guarded.served).await;
    peer.send(&head(10_000)).await;
    peer.send(&[b'x'; 10_000]).await;
    let answer = peer.hear_head().await.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 401 ") && !answer.contains("connection: close"), "{answer}");
}

/// Watches lasted for ever, and with ten thousand of them no worker could open a stream.
#[tokio::test]
async fn a_watch_of_the_health_ends_after_a_time() {
    let served = impatient().await;
    let channel =
        Endpoint::from_shared(format!("http://{}", served.address)).unwrap().connect().await.unwrap();
    let mut watch =
        HealthClient::new(channel).watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert!(in_time(watch.next()).await.unwrap().is_ok());
    assert_eq!(in_time(watch.next()).await.unwrap().unwrap_err().code(), Code::Unavailable);
}
