//! The HTTP server of a worker: `/metrics` and `/healthz`, with limits on connections and their time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::Metrics;

/// Connections at one time; further ones wait in the kernel's backlog.
const MAX_CONNECTIONS: usize = 16;
/// Longest time for the head of a request, and for a whole connection.
const MAX_HEADER_READ: Duration = Duration::from_secs(10);
const MAX_CONNECTION: Duration = Duration::from_secs(60);
/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves until it is dropped.
pub(crate) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(connection(stream, metrics.clone(), permit))),
            Err(error) => {
                tracing::debug!(%error, "no connection can be accepted; trying again soon");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, metrics: Arc<Metrics>, _permit: OwnedSemaphorePermit) {
    let answer = |request: Request<Incoming>| {
        let metrics = metrics.clone();
        async move { Ok::<_, Infallible>(answer(&request, &metrics)) }
    };
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(MAX_HEADER_READ)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    // A client that is cut off asks again.
    let _ = timeout(MAX_CONNECTION, connection).await;
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => match metrics.text() {
            Ok(text) => (StatusCode::OK, text),
            Err(error) => {
                tracing::error!(%error, "the metrics cannot be shown");
                (StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n".to_owned())
            }
        },
        (&Method::GET, "/healthz") => (StatusCode::OK, "ok\n".to_owned()),
        (&Method::GET, _) => (StatusCode::NOT_FOUND, "there are /metrics and /healthz\n".to_owned()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let format = HeaderValue::from_static(prometheus::TEXT_FORMAT);
    response.headers_mut().insert(CONTENT_TYPE, format);
    response
}
