//! Bytes that are no call, calls that are too large, too slow or half, on each call of the worker service and of remote execution, and calls that
//! nobody serves.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use wire::grpc::{FILE_DESCRIPTOR_SET, RegisterWorkerRequest};

use crate::endpoints::impatient;
use crate::guarded::Guarded;
use crate::remote;
use crate::served_calls::described;
use crate::support::Served;

pub(crate) type Body = http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>;

const OWN: &str = "lessor.worker.v1.WorkerScheduler";
/// Far longer than any bound of the server in these tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two bytes of a slow caller.
const TICK: Duration = Duration::from_millis(50);

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it is stuck")
}

/// Every call that the descriptor names, and those of remote execution.
pub(crate) fn calls() -> Vec<String> {
    let mut calls = described(FILE_DESCRIPTOR_SET);
    calls.retain(|call| call.contains("WorkerScheduler"));
    assert!(calls.len() >= 7 && calls.contains(&format!("{OWN}/Work")), "{calls:?}");
    calls.extend(remote::calls());
    calls
}

pub(crate) async fn connect(served: &Served) -> SendRequest<Body> {
    let stream = TcpStream::connect(served.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn call(served: &Served, path: &str) -> hyper::http::request::Builder {
    Request::post(format!("http://{}/{path}", served.address)).header("content-type", "application/grpc")
}

/// A message as gRPC frames it, with the length that it says it has.
pub(crate) fn framed(length: usize, message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(length as u32);
    bytes.put_slice(message);
    bytes.freeze()
}

/// The status that a call ended with, from its trailers or, when it was refused at once, from its head.
async fn ended(response: hyper::Response<hyper::body::Incoming>) -> Code {
    let (head, body) = response.into_parts();
    assert_eq!(head.status, 200);
    let trailers = in_time(body.collect()).await.unwrap().trailers().cloned().unwrap_or_default();
    let status = |headers: &HeaderMap| Status::from_header_map(headers).map(|status| status.code());
    status(&trailers).or_else(|| status(&head.headers)).expect("a status")
}

pub(crate) async fn send(served: &Served, path: &str, body: Bytes) -> Code {
    let request = call(served, path).body(Full::new(body).boxed()).unwrap();
    ended(in_time(connect(served).await.send_request(request)).await.unwrap()).await
}

#[tokio::test]
async fn malformed_and_oversized_messages_are_the_senders_fault_on_every_call() {
    let served = impatient().await;
    let position = served.position().await;
    for path in calls() {
        // Field 1 with a length beyond the end; a group; not UTF-8.
        for garbage in [&b"\x0a\xff\x01x"[..], b"\x0b", b"\x0a\x02\xff\xfe"] {
            let told = send(&served, &path, framed(garbage.len(), garbage)).await;
            assert_eq!(told, Code::InvalidArgument, "{path}");
        }
        assert_eq!(
            send(&served, &path, framed(100 << 20, b"x")).await,
            Code::OutOfRange,
            "{path}: oversized"
        );
        let cut = send(&served, &path, framed(100, b"\x0a\x01w")).await;
        assert!(
            matches!(cut, Code::Internal | Code::InvalidArgument | Code::Unknown),
            "{path}: half-closed: {cut:?}"
        );
        let mut squeezed = framed(3, b"\x0a\x01w").to_vec();
        squeezed[0] = 1;
        let squeezed = send(&served, &path, squeezed.into()).await;
        assert!(matches!(squeezed, Code::Internal | Code::Unimplemented), "{path}: compressed: {squeezed:?}");
    }
    assert_eq!(served.position().await, position);
    served.submit("q").await;
}

/// Sends byte after byte, never pauses for long and never ends; or, without bytes, stands still after the first.
async fn slow(served: &Served, path: &str, bytes: usize) -> Code {
    let (to, receiver) = mpsc::channel::<Bytes>(1);
    to.send(framed(10_000, b"\x0a")).await.unwrap();
    let body = StreamBody::new(ReceiverStream::new(receiver).map(|bytes| Ok(Frame::data(bytes)))).boxed();
    let request = call(served, path).body(body).unwrap();
    let mut sender = connect(served).await;
    let mut answer = Box::pin(async move { ended(sender.send_request(request).await.unwrap()).await });
    for _ in 0..bytes {
        if let Ok(code) = timeout(TICK, &mut answer).await {
            return code;
        }
        let _ = to.try_send(Bytes::from_static(b"x"));
    }
    in_time(answer).await
}

#[tokio::test]
async fn calls_that_come_byte_by_byte_or_stand_still_are_over_in_time() {
    let served = std::sync::Arc::new(impatient().await);
    let position = served.position().await;
    let mut abused = tokio::task::JoinSet::new();
    for path in calls() {
        for bytes in [0, 9_000] {
            let (served, path) = (served.clone(), path.clone());
            abused.spawn(async move { (slow(&served, &path, bytes).await, path, bytes) });
        }
    }
    while let Some(ended) = abused.join_next().await {
        let (code, path, bytes) = ended.unwrap();
        assert_eq!(code, Code::DeadlineExceeded, "{path}, {bytes} bytes");
        assert_eq!(served.get("/healthz").await.status, 200);
    }
    assert_eq!(served.position().await, position);
    served.submit("q").await;
}

/// The caller is gone in the middle of its message.
#[tokio::test]
async fn half_a_call_is_no_call() {
    let served = impatient().await;
    let position = served.position().await;
    for path in calls() {
        let (bytes, receiver) = mpsc::channel::<Bytes>(1);
        bytes.send(framed(100, b"\x0a")).await.unwrap();
        let body = StreamBody::new(ReceiverStream::new(receiver).map(|bytes| Ok(Frame::data(bytes)))).boxed();
        let request = call(&served, &path).body(body).unwrap();
        let mut sender = connect(&served).await;
        let pending = tokio::spawn(async move { sender.send_request(request).await });
        // Another call on a later connection shows that this one was accepted; then its client is gone.
        assert_eq!(served.get("/healthz").await.status, 200);
        pending.abort();
        drop(bytes);
    }
    assert_eq!(served.position().await, position);
    served.submit("q").await;
}

#[tokio::test]
async fn a_call_ends_at_its_callers_deadline_although_its_request_has_not_arrived() {
    let served = impatient().await;
    for path in calls() {
        let (bytes, receiver) = mpsc::channel::<Bytes>(1);
        bytes.send(framed(100, b"\x0a")).await.unwrap();
        let body = StreamBody::new(ReceiverStream::new(receiver).map(|bytes| Ok(Frame::data(bytes)))).boxed();
        let request = call(&served, &path).header("grpc-timeout", "200m").body(body).unwrap();
        let mut sender = connect(&served).await;
        let code = ended(in_time(sender.send_request(request)).await.unwrap()).await;
        assert_eq!(code, Code::DeadlineExceeded, "{path}");
        drop(bytes);
    }
}

#[tokio::test]
async fn a_call_without_a_message_is_refused() {
    let served = Served::start().await;
    assert_eq!(send(&served, &format!("{OWN}/RegisterWorker"), Bytes::new()).await, Code::Internal);
}

#[tokio::test]
async fn s3_40_what_is_not_served_is_unimplemented() {
    let served = Served::start().await;
    let message = framed(0, b"");
    for path in [&format!("{OWN}/Nothing"), "WorkerScheduler/Nothing", "some.Other/Call"] {
        assert_eq!(send(&served, path, message.clone()).await, Code::Unimplemented, "{path}");
    }
}

#[tokio::test]
async fn a_deadline_that_is_none_is_refused() {
    let served = Served::start().await;
    let worker = RegisterWorkerRequest { worker_id: "w".to_owned(), ..RegisterWorkerRequest::default() };
    let message = worker.encode_to_vec();
    let body = Full::new(framed(message.len(), &message)).boxed();
    let request =
        call(&served, &format!("{OWN}/RegisterWorker")).header("grpc-timeout", "soon").body(body).unwrap();
    let response = in_time(connect(&served).await.send_request(request)).await.unwrap();
    assert_eq!(ended(response).await, Code::InvalidArgument);
}

/// A status without a message is one frame of headers, which ends the stream. When the end came in a frame of its own, clients
/// such as Bazel took it for a broken answer.
#[tokio::test]
async fn a_refused_stream_is_answered_in_one_frame_with_keys_too() {
    let guarded = Guarded::start().await;
    let key = guarded.key("k", "default", &["builder", "worker"]).await;
    let execution = "build.bazel.remote.execution.v2.Execution";
    for (path, timeout, code) in [
        (format!("{OWN}/RegisterWorker"), "10S", Code::InvalidArgument),
        (format!("{OWN}/Work"), "soon", Code::InvalidArgument),
        (format!("{execution}/Execute"), "10S", Code::InvalidArgument),
        (format!("{execution}/WaitExecution"), "10S", Code::NotFound),
    ] {
        let request = call(&guarded.served, &path)
            .header("grpc-timeout", timeout)
            .header("authorization", format!("Bearer {key}"))
            .body(Full::new(framed(0, b"")).boxed())
            .unwrap();
        let response = in_time(connect(&guarded.served).await.send_request(request)).await.unwrap();
        assert!(hyper::body::Body::is_end_stream(response.body()), "{path}: the end comes later");
        assert_eq!(ended(response).await, code, "{path}");
    }
}
