//! A lean HTTP/2 client with one connection, for unary calls over gRPC: the counterpart of the HTTP/1.1 client. A call is
//! written by its caller's task and the task of the connection; the channel of the gRPC library has two more tasks between them.

use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::Result;
use bytes::Bytes;
use h2::RecvStream;
use h2::client::SendRequest;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use hyper::{Request, Response, Uri};
use tokio::net::TcpStream;
use tower::Service;

use super::http::Server;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Answer = Pin<Box<dyn Future<Output = Result<Response<Received>, Error>> + Send>>;

/// A connection without protection.
#[derive(Clone)]
pub(crate) struct Http2 {
    sender: SendRequest<Bytes>,
}

impl Http2 {
    pub(crate) async fn connect(server: &Server) -> Result<Http2> {
        let stream = TcpStream::connect(server.address()).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = h2::client::handshake(stream).await?;
        tokio::spawn(connection);
        Ok(Http2 { sender })
    }

    /// The beginning of the addresses of all calls.
    pub(crate) fn origin(server: &Server) -> Result<Uri> {
        Ok(server.url().as_str().parse()?)
    }
}

impl Service<Request<tonic::body::Body>> for Http2 {
    type Response = Response<Received>;
    type Error = Error;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.sender.poll_ready(context).map_err(Error::from)
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Answer {
        let mut sender = self.sender.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let (answer, mut stream) = sender.send_request(Request::from_parts(head, ()), false)?;
            stream.send_data(body, true)?;
            Ok(answer.await?.map(|stream| Received { stream, is_data_over: false }))
        })
    }
}

/// The body of an answer.
pub(crate) struct Received {
    stream: RecvStream,
    is_data_over: bool,
}

impl Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.is_data_over {
            match self.stream.poll_data(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(data))) => {
                    let released = self.stream.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(released.map(|()| Frame::data(data))));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => self.is_data_over = true,
            }
        }
        self.stream.poll_trailers(context).map(|trailers| Some(trailers.transpose()?.map(Frame::trailers)))
    }
}
