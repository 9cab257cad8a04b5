//! Bytes that are no call, calls that are too large, too slow or half, and calls that nobody serves: a clear error, and
//! nothing else disturbed.

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use crate::support::{Served, in_time, registration, submit, task};

type Body = http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>;

const OWN: &str = "lessor.worker.v1.WorkerScheduler";

async fn connect(served: &Served) -> SendRequest<Body> {
    let stream = TcpStream::connect(served.address).await.unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn call(served: &Served, path: &str) -> hyper::http::request::Builder {
    Request::post(format!("http://{}/{path}", served.address)).header("content-type", "application/grpc")
}

/// A message as gRPC frames it, with the length that it says it has.
fn framed(length: usize, message: &[u8]) -> Bytes {
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

async fn send(served: &Served, path: &str, body: Bytes) -> Code {
    let request = call(served, path).body(Full::new(body).boxed()).unwrap();
    ended(in_time(connect(served).await.send_request(request)).await.unwrap()).await
}

#[tokio::test]
async fn malformed_messages_are_the_senders_fault_on_every_call() {
    let served = Served::start().await;
    let position = served.position().await;
    let calls = [
        "RegisterWorker",
        "LeaseTask",
        "UpdateTaskStatus",
        "ReportHeartbeat",
        "UnregisterWorker",
        "SubmitTasks",
        "Work",
    ];
    for name in calls {
        let path = format!("{OWN}/{name}");
        // Field 1 with a length beyond the end; a group; not UTF-8.
        for garbage in [&b"\x0a\xff\x01x"[..], b"\x0b", b"\x0a\x02\xff\xfe"] {
            assert_eq!(
                send(&served, &path, framed(garbage.len(), garbage)).await,
                Code::InvalidArgument,
                "{name}"
            );
        }
        assert_eq!(
            send(&served, &path, framed(100 << 20, b"x")).await,
            Code::OutOfRange,
            "{name}: oversized"
        );
        let cut = send(&served, &path, framed(100, b"\x0a\x01w")).await;
        assert!(
            matches!(cut, Code::Internal | Code::InvalidArgument | Code::Unknown),
            "{name}: cut off: {cut:?}"
        );
        let mut squeezed = framed(3, b"\x0a\x01w").to_vec();
        squeezed[0] = 1;
        let squeezed = send(&served, &path, squeezed.into()).await;
        assert!(matches!(squeezed, Code::Internal | Code::Unimplemented), "{name}: compressed: {squeezed:?}");
    }
    assert_eq!(served.position().await, position);
    served.worker("w").await;
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
async fn a_request_that_does_not_arrive_by_its_deadline_is_over() {
    let served = Served::start().await;
    for name in ["SubmitTasks", "Work"] {
        let (bytes, receiver) = mpsc::channel::<Bytes>(1);
        bytes.send(framed(100, b"\x0a")).await.unwrap();
        let body = StreamBody::new(ReceiverStream::new(receiver).map(|bytes| Ok(Frame::data(bytes)))).boxed();
        let request = call(&served, &format!("{OWN}/{name}")).header("grpc-timeout", "200m");
        let response = connect(&served).await.send_request(request.body(body).unwrap());
        assert_eq!(ended(in_time(response).await.unwrap()).await, Code::DeadlineExceeded, "{name}");
        drop(bytes);
    }
    submit(&mut served.client().await, task("q")).await;
}

#[tokio::test]
async fn a_deadline_that_is_none_is_refused() {
    let served = Served::start().await;
    let message = registration("w").encode_to_vec();
    let body = Full::new(framed(message.len(), &message)).boxed();
    let request =
        call(&served, &format!("{OWN}/RegisterWorker")).header("grpc-timeout", "soon").body(body).unwrap();
    let response = in_time(connect(&served).await.send_request(request)).await.unwrap();
    assert_eq!(ended(response).await, Code::InvalidArgument);
}

#[tokio::test]
async fn half_a_request_is_no_request() {
    let served = Served::start().await;
    let position = served.position().await;
    for name in ["SubmitTasks", "Work"] {
        let (bytes, receiver) = mpsc::channel::<Bytes>(1);
        bytes.send(framed(100, b"\x0a")).await.unwrap();
        let body = StreamBody::new(ReceiverStream::new(receiver).map(|bytes| Ok(Frame::data(bytes)))).boxed();
        let request = call(&served, &format!("{OWN}/{name}")).body(body).unwrap();
        let mut sender = connect(&served).await;
        let pending = tokio::spawn(async move { sender.send_request(request).await });
        // Another call on a later connection shows that this one was accepted; then its client is gone.
        served.worker("w").await;
        pending.abort();
        drop(bytes);
    }
    assert_eq!(served.position().await, position);
    submit(&mut served.client().await, task("q")).await;
}
