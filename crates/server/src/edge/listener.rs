//! The accept loop: HTTP/1.1 and HTTP/2 on one port, plain or through TLS, with the limits that the libraries do not set.
//!
//! It guarantees that no peer holds more than its share for ever: connections, headers, streams, resets and silence
//! are bounded, and an idle connection makes room for a new one. A TLS handshake runs in the task of its connection, which is
//! idle until the handshake is complete. On shutdown it lingers first, if it shall: it serves on, and closes each connection
//! as its calls end. Then it stops accepting, ends long polls with empty answers, lets running calls finish up to a limit, and
//! cuts the rest. Dropping the future of [`run`] cuts everything at once.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::DuplexStream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::app::App;
use crate::edge::auth::ConnectionKey;
use crate::edge::connection_task::{Calls, ConnectionTask};
use crate::edge::connections::{Connections, Open};
use crate::edge::grpc_guard::is_short_call;
use crate::edge::guarded_io::Guarded;
use crate::edge::limits::ConnectionTenants;
use crate::edge::operator::{Context, Ends, InProcess};
use crate::edge::requests::Requests;
use crate::edge::stream::Stream;
use crate::edge::tls::{self, PeerChain, Tls};

/// Most connections at one time. For another one an idle one is closed; when none is idle, it waits in the kernel's backlog.
const MAX_CONNECTIONS: usize = 10_000;
/// Longest time from the connection, or from the answer before, to the end of a request's headers. It also ends idle
/// HTTP/1 connections.
const MAX_HEADER_READ: Duration = Duration::from_secs(30);
/// Longest time from a connection to the end of its TLS handshake.
const MAX_TLS_HANDSHAKE: Duration = Duration::from_secs(10);
/// Longest time that a peer may take no data while we have some for it.
const MAX_WRITE_STALL: Duration = Duration::from_secs(30);
/// Largest head of an HTTP/1 request, and most headers in it.
const MAX_HEAD_BYTES: usize = 64 * 1_024;
const MAX_HEADERS: usize = 100;
/// Largest header list of an HTTP/2 request, as the protocol counts it.
const MAX_HEADER_LIST_BYTES: u32 = 32 * 1_024;
/// Most requests at one time on an HTTP/2 connection.
const MAX_STREAMS: u32 = 200;
/// Most streams that a peer may open and reset before we accepted them, and most resets that we send because of its
/// mistakes; beyond either the connection is cut.
const MAX_PENDING_RESETS: usize = 20;
const MAX_ERROR_RESETS: usize = 100;
/// How much a peer may send ahead of what was read: on a stream, on a connection; and how much we hold for it.
const STREAM_WINDOW_BYTES: u32 = 256 * 1_024;
const CONNECTION_WINDOW_BYTES: u32 = 1_024 * 1_024;
const MAX_SEND_BUFFER_BYTES: usize = 256 * 1_024;
/// Largest frame of a peer: a piece of an upload comes in one, and each costs a read and a turn of the connection.
const MAX_FRAME_BYTES: u32 = 256 * 1_024;
/// How often a silent HTTP/2 peer is asked whether it lives, and how long it may take to say so.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the loop pauses when the system gives no connection, for instance because files are exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How often it is tried again to make room for a connection, and how long a connection that makes room has to close.
const MAKE_ROOM_INTERVAL: Duration = Duration::from_millis(500);
/// How long running calls may take to finish on shutdown.
const MAX_DRAIN: Duration = Duration::from_secs(10);
/// A server that lingers stops when nothing has happened for this long. Load balancers look every few seconds.
const QUIET: Duration = Duration::from_secs(5);

/// The limits that a test or an operator may want to be others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub max_connections: usize,
    pub max_tls_handshake: Duration,
    pub max_header_read: Duration,
    pub max_write_stall: Duration,
    pub max_drain: Duration,
    /// How long the server serves on after it was told to stop, while other nodes take its clients. Zero: not at all.
    pub max_linger: Duration,
    /// How often a silent HTTP/2 peer is asked whether it lives, and how long it may take to answer.
    pub keep_alive_interval: Duration,
    pub keep_alive_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_connections: MAX_CONNECTIONS,
            max_tls_handshake: MAX_TLS_HANDSHAKE,
            max_header_read: MAX_HEADER_READ,
            max_write_stall: MAX_WRITE_STALL,
            max_drain: MAX_DRAIN,
            max_linger: Duration::ZERO,
            keep_alive_interval: KEEP_ALIVE_INTERVAL,
            keep_alive_timeout: KEEP_ALIVE_TIMEOUT,
        }
    }
}

/// What a server listens on.
pub struct Listener {
    pub tcp: TcpListener,
    /// Without it, connections over TCP are plain.
    pub tls: Option<Tls>,
    /// Connections of clients in this process, which need no TLS.
    pub in_process: Option<mpsc::Receiver<DuplexStream>>,
}

impl From<TcpListener> for Listener {
    fn from(tcp: TcpListener) -> Listener {
        Listener { tcp, tls: None, in_process: None }
    }
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were not done within the limit.
    pub cut_off: usize,
}

/// Serves the routes until `shutdown` resolves and what was running is done.
pub(crate) async fn run(
    listener: Listener,
    router: Router,
    app: App,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) -> Drained {
    let mut shutdown = pin!(shutdown);
    let permits = Arc::new(Semaphore::new(limits.max_connections));
    let open = Arc::new(Connections::default());
    let Listener { tcp: listener, tls, mut in_process } = listener;
    let local = listener.local_addr().ok();
    let is_loopback = local.is_some_and(|address| address.ip().is_loopback());
    let requests = Requests::new(router, app.clone(), is_loopback, tls.is_some());
    let server = Arc::new(Server { requests, tls, app, limits });
    let mut connections = JoinSet::new();
    let mut until = Until::Shutdown;
    {
        // Kept over the turns of the loop, since a connection in it waits for its permit.
        let mut next = pin!(accept(&listener, &permits, &open));
        let mut lingered = pin!(linger(&open, &server.app, limits.max_linger));
        loop {
            let accepts = until == Until::Shutdown || server.app.accepts_while_lingering();
            tokio::select! {
                () = &mut shutdown, if until == Until::Shutdown => {
                    if limits.max_linger.is_zero() {
                        break;
                    }
                    until = Until::Lingered;
                }
                () = &mut lingered, if until == Until::Lingered => break,
                Some(_) = connections.join_next() => {}
                accepted = &mut next, if accepts => {
                    connections.spawn(server.clone().connection(accepted, &open));
                    next.set(accept(&listener, &permits, &open));
                }
                stream = next_in_process(&mut in_process) => {
                    if let Some(local) = local {
                        let accepted = Accepted { socket: Socket::InProcess(stream), peer: local, permit: None };
                        connections.spawn(server.clone().connection(accepted, &open));
                    }
                }
            }
        }
    }
    drop(listener);
    server.app.drain();
    open.close_all();
    let all_done = async { while connections.join_next().await.is_some() {} };
    if timeout(limits.max_drain, all_done).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "calls were still running when the time to drain was over"
        );
    }
    let drained = Drained { cut_off: connections.len() };
    connections.shutdown().await;
    drained
}

/// What a server waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Shutdown,
    Lingered,
}

/// Serves on until the connections have ended, or are not used any more.
async fn linger(open: &Connections, app: &App, max_linger: Duration) {
    app.linger();
    open.linger();
    let quiet = open.quiet(QUIET.min(max_linger), app.accepts_while_lingering());
    if timeout(max_linger, quiet).await.is_err() {
        tracing::info!("connections are still in use after the time to leave; waits and streams are ended");
    }
}

struct Accepted {
    socket: Socket,
    peer: SocketAddr,
    /// Only for connections from outside.
    permit: Option<OwnedSemaphorePermit>,
}

enum Socket {
    Tcp(TcpStream),
    InProcess(DuplexStream),
}

/// The next connection of a client in this process; pending if there is none.
async fn next_in_process(connections: &mut Option<mpsc::Receiver<DuplexStream>>) -> DuplexStream {
    if let Some(receiver) = connections {
        if let Some(stream) = receiver.recv().await {
            return stream;
        }
        *connections = None;
    }
    std::future::pending().await
}

/// The next connection, once there is a permit for it.
async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>, open: &Connections) -> Accepted {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let permit = Some(permit(permits, open).await);
                return Accepted { socket: Socket::Tcp(stream), peer, permit };
            }
            Err(error) if is_about_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "no connection can be accepted; trying again soon");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A permit for a connection. Idle connections make room for it, one at a time.
async fn permit(permits: &Arc<Semaphore>, open: &Connections) -> OwnedSemaphorePermit {
    loop {
        if let Ok(permit) = permits.clone().try_acquire_owned() {
            return permit;
        }
        open.close_idle();
        if let Ok(Ok(permit)) = timeout(MAKE_ROOM_INTERVAL, permits.clone().acquire_owned()).await {
            return permit;
        }
    }
}

/// The peer was gone before it was accepted; the next one may be fine.
fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

struct Server {
    requests: Requests,
    tls: Option<Tls>,
    app: App,
    limits: Limits,
}

impl Server {
    fn connection(
        self: Arc<Self>,
        accepted: Accepted,
        open: &Arc<Connections>,
    ) -> impl Future<Output = ()> + use<> {
        let open = open.open(accepted.peer.ip());
        self.serve(accepted, open)
    }

    async fn serve(self: Arc<Self>, Accepted { socket, peer, permit: _permit }: Accepted, open: Open) {
        let _counted = self.app.metrics.connection();
        // A socket that has no address is closed already.
        let local = match &socket {
            Socket::Tcp(stream) => stream.local_addr(),
            Socket::InProcess(_) => Ok(peer),
        };
        let Ok(local) = local else { return };
        let ends = Ends { peer, local };
        let is_in_process = matches!(socket, Socket::InProcess(_));
        let Some((stream, chain)) = self.establish(socket, peer, &open).await else { return };
        let by_certificate = chain.and_then(|chain| self.app.certificates.identify(chain));
        let stream = self.app.metrics.count_bytes(stream);
        let io = Guarded::new(TokioIo::new(stream), self.limits.max_header_read, self.limits.max_write_stall);
        let tenants = self.app.limits.limits_connections().then(|| ConnectionTenants::new(open.0.clone()));
        let key = Arc::new(ConnectionKey::default());
        let calls = Calls::default();
        let service = service_fn(|mut request| {
            calls.announce(is_short_call(&request));
            request.extensions_mut().insert(Context::new(ends));
            if let Some(tenants) = &tenants {
                request.extensions_mut().insert(tenants.clone());
            }
            if is_in_process {
                request.extensions_mut().insert(InProcess);
            }
            if let Some(by_certificate) = &by_certificate {
                request.extensions_mut().insert(by_certificate.clone());
            }
            let in_flight = open.0.request(request.version());
            let (server, key) = (self.clone(), key.clone());
            async move {
                let response = server.requests.serve(request, &key).await;
                Ok::<_, Infallible>(in_flight.until_sent(response))
            }
        });
        let builder = builder(self.limits, calls.clone());
        let connection = pin!(builder.serve_connection(io, service));
        let mut connection = ConnectionTask::new(connection, calls.clone());
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = open.0.closing() => {
                connection.change(|connection| connection.graceful_shutdown());
                loop {
                    match timeout(MAKE_ROOM_INTERVAL, &mut connection).await {
                        Ok(ended) => break ended,
                        // Another peer waits for the room. A request that was on its way is still served.
                        Err(_) if open.0.is_idle() && !self.app.is_lingering() => break Ok(()),
                        Err(_) => {}
                    }
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    /// The stream of a connection, after the TLS handshake if there is one, and the certificate of the client.
    async fn establish(
        &self,
        socket: Socket,
        peer: SocketAddr,
        open: &Open,
    ) -> Option<(Stream, Option<Arc<PeerChain>>)> {
        let stream = match socket {
            Socket::Tcp(stream) => stream,
            Socket::InProcess(stream) => {
                return Some((Stream::InProcess(stream), None));
            }
        };
        // Answers are small and waited for; a failure only makes them slower.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return Some((Stream::Tcp(stream), None)) };
        // Boxed, so that plain connections do not carry its state.
        let handshake = Box::pin(timeout(self.limits.max_tls_handshake, tls::accept(tls, stream)));
        let accepted = tokio::select! {
            accepted = handshake => accepted,
            // Another peer waits for the room, or the server stops.
            () = open.0.closing() => return None,
        };
        match accepted.unwrap_or_else(|late| Err(late.into())) {
            Ok((stream, chain)) => Some((Stream::Tls(Box::new(stream)), chain)),
            Err(error) => {
                self.app.metrics.tls_handshake_failed();
                tracing::debug!(%peer, %error, "a TLS handshake failed");
                None
            }
        }
    }
}

fn builder(limits: Limits, calls: Calls) -> auto::Builder<Calls> {
    let mut builder = auto::Builder::new(calls);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.max_header_read)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_ERROR_RESETS)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        .max_send_buf_size(MAX_SEND_BUFFER_BYTES)
        .keep_alive_interval(limits.keep_alive_interval)
        .keep_alive_timeout(limits.keep_alive_timeout);
    builder
}
