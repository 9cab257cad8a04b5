//! Peers that are slow, silent, gone or hostile do not disturb the others, and the server stops in good order.

use std::future::Future;
use std::time::Duration;

use crate::support::{Served, send};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use server::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(30);

fn impatient() -> Limits {
    Limits { max_header_read: Duration::from_millis(200), ..Limits::default() }
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it is stuck")
}

/// Sends some bytes and reads until the server closes.
async fn until_closed(served: &Served, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A reset is a close as well.
    let _ = in_time(stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn polls(served: &Served, wanted: usize) {
    in_time(async {
        while served.running.handle.status().await.unwrap().polls != wanted {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn n10_silence_and_half_a_head_are_cut_off_and_others_are_served() {
    let served = Served::start_with(impatient()).await;
    let starts: [&[u8]; 5] = [
        b"",
        b"P",
        b"PRI * HTTP/2.0\r\n\r\nSM",
        b"GET /healthz HT",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow: ",
    ];
    let mut slow = Vec::new();
    for start in starts {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(start).await.unwrap();
        slow.push(stream);
    }
    assert_eq!(served.get("/healthz").await.status, 200);
    for mut stream in slow {
        let _ = in_time(stream.read_to_end(&mut Vec::new())).await;
    }
}

#[tokio::test]
async fn n8_a_poll_is_freed_when_its_worker_hangs_up() {
    let served = Served::start().await;
    let body = json!({"workerId": "w", "queues": ["q"], "waitMs": 60_000}).to_string();
    let head = format!(
        "POST /v1/leases HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    polls(&served, 1).await;
    drop(stream);
    // The coordinator notices a poller that is gone when it has something for it.
    let task = served.submit("q").await;
    let lease = in_time(async {
        loop {
            let body = json!({"workerId": "v", "queues": ["q"], "waitMs": 1_000});
            let told = served.post("/v1/leases", body).await;
            if let Some(lease) = told.body["leases"].as_array().and_then(|leases| leases.first()) {
                return lease.clone();
            }
        }
    })
    .await;
    assert_eq!(lease["taskId"].as_str(), Some(task.as_str()), "the task is not lost with the poll");
}

/// A machine that lost its power sends neither an answer nor a close.
#[tokio::test]
async fn n8_a_half_open_connection_is_closed_and_its_poll_takes_no_task() {
    let limits = Limits {
        keep_alive_interval: Duration::from_millis(100),
        keep_alive_timeout: Duration::from_secs(2),
        ..Limits::default()
    };
    let served = Served::start_with(limits).await;
    let (gone, network) = tokio::io::duplex(1 << 16);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(gone)).await.unwrap();
    tokio::spawn(connection);
    let stream = TcpStream::connect(served.address).await.unwrap();
    let (mut from_server, mut to_server) = stream.into_split();
    let (mut from_client, mut to_client) = tokio::io::split(network);
    let (cut, is_cut) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let network = tokio::spawn(async move {
        tokio::select! {
            _ = tokio::io::copy(&mut from_server, &mut to_client) => panic!("it is closed too early"),
            _ = is_cut => from_server,
        }
    });
    let body = json!({"workerId": "gone", "queues": ["q"], "waitMs": 60_000}).to_string();
    let request = hyper::Request::post(format!("http://{}/v1/leases", served.address))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let _poll = tokio::spawn(sender.send_request(request));
    polls(&served, 1).await;
    // From here on nothing reaches the peer, and so it answers nothing.
    cut.send(()).unwrap();
    let mut from_server = network.await.unwrap();
    let _ = in_time(from_server.read_to_end(&mut Vec::new())).await;
    let task = served.submit("q").await;
    let lease =
        in_time(served.post("/v1/leases", json!({"workerId": "w", "queues": ["q"], "waitMs": 60_000})));
    assert_eq!(lease.await.body["leases"][0]["taskId"].as_str(), Some(task.as_str()));
}

#[tokio::test]
async fn a4_oversize_headers_are_refused() {
    let served = Served::start().await;
    let large = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(100_000));
    let answer = until_closed(&served, large.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    let many = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(200));
    let answer = until_closed(&served, many.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(served.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn http_2_is_served_on_the_same_port() {
    let served = Served::start().await;
    let stream = TcpStream::connect(served.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let driver = tokio::spawn(connection);
    let uri = format!("http://{}/v1/tasks", served.address);
    let request = hyper::Request::post(uri).header("content-type", "application/json");
    let body = Full::new(Bytes::from_static(b"{\"queue\":\"q\",\"payload\":1}"));
    let response = in_time(sender.send_request(request.body(body.boxed()).unwrap())).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (201, hyper::Version::HTTP_2));

    let uri =
        format!("http://{}/build.bazel.remote.execution.v2.Capabilities/GetCapabilities", served.address);
    let request = hyper::Request::post(uri).header("content-type", "application/grpc");
    let response = in_time(sender.send_request(request.body(Empty::new().boxed()).unwrap())).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["grpc-status"]),
        (200, &"12".parse().unwrap())
    );
    assert_eq!(response.headers()["content-type"], "application/grpc");
    assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    drop(sender);
    in_time(driver).await.unwrap().unwrap();
}

#[tokio::test]
async fn p5_a_stop_answers_long_polls_at_once_and_empty() {
    let mut served = Served::start().await;
    let task = served.submit("other").await;
    let poll = served.request("POST", "/v1/leases");
    let poll = poll.json(&json!({"workerId": "w", "queues": ["q"], "waitMs": 60_000}));
    let poll = tokio::spawn(send(poll));
    let wait = tokio::spawn(send(served.request("GET", &format!("/v1/tasks/{task}?waitMs=60000"))));
    polls(&served, 1).await;
    served.begin_stop();
    let answer = in_time(poll).await.unwrap();
    assert_eq!((answer.status, &answer.body), (200, &json!({"leases": []})));
    let answer = in_time(wait).await;
    if let Ok(answer) = answer {
        assert_eq!((answer.status, answer.body["state"].as_str()), (200, Some("WAITING")));
    }
    assert_eq!(in_time(served.stopped()).await.cut_off, 0);
}

#[tokio::test]
async fn p6_what_does_not_end_within_the_limit_is_cut_off() {
    let limits = Limits { max_drain: Duration::from_millis(100), ..Limits::default() };
    let served = Served::start_with(limits).await;
    let mut stuck = TcpStream::connect(served.address).await.unwrap();
    stuck
        .write_all(b"POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        .await
        .unwrap();
    // Another call on a later connection shows that the first one was accepted.
    assert_eq!(served.get("/healthz").await.status, 200);
    assert_eq!(in_time(served.stopped()).await.cut_off, 1);
    let _ = in_time(stuck.read_to_end(&mut Vec::new())).await;
}

#[tokio::test]
async fn p6_dropping_the_server_cuts_everything_at_once() {
    let served = Served::start().await;
    let mut idle = TcpStream::connect(served.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut byte = [0; 1];
    in_time(idle.read_exact(&mut byte)).await.unwrap();
    served.abort();
    let _ = in_time(idle.read_to_end(&mut Vec::new())).await;
}
