//! A server that breaks the Remote Execution API in one way: a proxy before a real one that alters messages on their way,
//! or makes refusals into answers. It knows calls by their names alone, so that one proxy serves all services.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Request, Response};
use axum::routing::{MethodRouter, any, get};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tower::{Service, ServiceExt};

/// Alters a message of a call.
pub(crate) type Alter = fn(&str, Bytes) -> Bytes;

#[derive(Clone, Copy)]
pub(crate) struct Fault {
    pub request: Alter,
    pub response: Alter,
    /// Whose refusals become an answer with an empty message.
    pub accepts: &'static str,
}

impl Fault {
    pub(crate) const NONE: Fault =
        Fault { request: |_, message| message, response: |_, message| message, accepts: "none" };

    pub(crate) fn request(request: Alter) -> Fault {
        Fault { request, ..Fault::NONE }
    }

    pub(crate) fn response(response: Alter) -> Fault {
        Fault { response, ..Fault::NONE }
    }

    pub(crate) fn accepts(accepts: &'static str) -> Fault {
        Fault { accepts, ..Fault::NONE }
    }
}

/// Reads a message, changes it and writes it again.
pub(crate) fn alter<M: Message + Default>(message: &[u8], change: impl FnOnce(&mut M)) -> Bytes {
    let mut read = M::decode(message).unwrap();
    change(&mut read);
    read.encode_to_vec().into()
}

#[derive(Clone)]
struct Proxy {
    real: Channel,
    fault: Fault,
}

/// Starts the server before which the fault lies; its address.
pub(crate) async fn start(server: &str, fault: Fault) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = format!("http://{}", listener.local_addr().unwrap());
    let real = Endpoint::from_shared(server.to_owned()).unwrap().connect_lazy();
    let router = Router::new().route("/", get(|| async {})).fallback(forward);
    let router = router.with_state(Proxy { real, fault });
    tokio::spawn(async move { axum::serve(listener, router).await });
    own
}

/// Passes every call on to the server, and changes nothing.
pub(crate) fn pass_on(server: &str) -> MethodRouter {
    let real = Endpoint::from_shared(server.to_owned()).unwrap().connect_lazy();
    any(forward).with_state(Proxy { real, fault: Fault::NONE })
}

async fn forward(State(proxy): State<Proxy>, request: Request<Body>) -> Response<Body> {
    let call = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let fault = proxy.fault;
    let accepts = fault.accepts == call;
    let request =
        request.map(|body| tonic::body::Body::new(altered(body, call.clone(), fault.request, false)));
    let mut real = proxy.real;
    let answer = real.ready().await.unwrap().call(request).await;
    // The client's own going away ends the call.
    let Ok(mut answer) = answer else { return Response::default() };
    if accepts && is_refusal(answer.headers()) {
        let headers = answer.headers_mut();
        for name in ["grpc-status", "grpc-message", "grpc-status-details-bin"] {
            headers.remove(name);
        }
        return answer.map(|_| Body::new(altered(Body::empty(), call, fault.response, true)));
    }
    answer.map(|body| Body::new(altered(Body::new(body), call, fault.response, accepts)))
}

fn is_refusal(headers: &HeaderMap) -> bool {
    headers.get("grpc-status").is_some_and(|status| status != "0")
}

type FrameResult = Result<Frame<Bytes>, axum::Error>;

/// The body with each of its messages altered. Where refusals are accepted, it ends well, after one message at least.
fn altered(body: Body, call: String, alter: Alter, accepts: bool) -> StreamBody<ReceiverStream<FrameResult>> {
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(async move {
        // It ends when nobody takes its messages any more.
        let _ = pass(body, &call, alter, accepts, &sender).await;
    });
    StreamBody::new(ReceiverStream::new(receiver))
}

async fn pass(
    mut body: Body,
    call: &str,
    alter: Alter,
    accepts: bool,
    to: &mpsc::Sender<FrameResult>,
) -> Result<(), mpsc::error::SendError<FrameResult>> {
    let (mut buffer, mut messages, mut trailers) = (BytesMut::new(), 0, None);
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Err(error) => return to.send(Err(error)).await,
            Ok(Ok(data)) => buffer.extend_from_slice(&data),
            Ok(Err(other)) => trailers = other.into_trailers().ok(),
        }
        while let Some(message) = take(&mut buffer) {
            messages += 1;
            to.send(Ok(Frame::data(framed(&alter(call, message))))).await?;
        }
    }
    if accepts && trailers.as_ref().is_none_or(is_refusal) {
        if messages == 0 {
            to.send(Ok(Frame::data(framed(&[])))).await?;
        }
        trailers =
            Some(HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]));
    }
    match trailers {
        Some(trailers) => to.send(Ok(Frame::trailers(trailers))).await,
        None => Ok(()),
    }
}

/// The next whole message, after its mark and its length.
fn take(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = u32::from_be_bytes(buffer.get(1..5)?.try_into().ok()?) as usize;
    if buffer.len() < 5 + length {
        return None;
    }
    buffer.advance(5);
    Some(buffer.split_to(length).freeze())
}

fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put_slice(message);
    framed.freeze()
}
