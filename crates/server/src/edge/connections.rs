//! The open connections and who holds them. When there is no room for another, an idle one makes room: of the address that
//! holds most, the one that was not used for the longest time. Pings are no use of a connection.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, Version, header};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::{Instant, interval};

/// A body of this size is written at once.
const SMALL_BODY_BYTES: u64 = 16 * 1_024;
/// How often a server that lingers looks whether anything happens on its connections.
const QUIET_CHECK: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Connections {
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    /// Counts the connections and their requests, as a clock of use.
    uses: AtomicU64,
    /// Connections close after their next answer.
    is_lingering: AtomicBool,
}

/// One connection.
pub(super) struct Connection {
    id: u64,
    peer: IpAddr,
    requests: AtomicUsize,
    last_use: AtomicU64,
    is_closing: AtomicBool,
    /// Whether its last request came over HTTP/2.
    is_http2: AtomicBool,
    close: Notify,
    all: Arc<Connections>,
}

/// Keeps a connection in the list while it is open.
pub(super) struct Open(pub(super) Arc<Connection>);

impl Connections {
    pub(super) fn open(self: &Arc<Self>, peer: IpAddr) -> Open {
        let id = self.uses.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection {
            id,
            peer,
            requests: AtomicUsize::new(0),
            last_use: AtomicU64::new(id),
            is_closing: AtomicBool::new(false),
            is_http2: AtomicBool::new(false),
            close: Notify::new(),
            all: self.clone(),
        });
        self.lock().insert(id, connection.clone());
        Open(connection)
    }

    /// Asks one idle connection to close, if there is one. One at a time: it is closed soon.
    pub(super) fn close_idle(&self) {
        let open = self.lock();
        if open.values().any(|connection| connection.is_idle() && connection.is_closing()) {
            return;
        }
        let mut held = HashMap::<IpAddr, usize>::new();
        open.values().for_each(|connection| *held.entry(connection.peer).or_default() += 1);
        let idle = open.values().filter(|connection| connection.is_idle());
        let chosen = idle.max_by_key(|connection| {
            let last_use = connection.last_use.load(Ordering::Relaxed);
            (held[&connection.peer], std::cmp::Reverse(last_use))
        });
        if let Some(connection) = chosen {
            connection.close();
        }
    }

    /// Asks every connection to close as soon as it is idle.
    pub(super) fn close_all(&self) {
        self.lock().values().for_each(|connection| connection.close());
    }

    /// Asks every connection to close without a loss. HTTP/2 tells its peers to send nothing more, and what they have sent is
    /// served. A connection of HTTP/1 is told with its next answer: closed earlier, it could cross a request on its way.
    pub(super) fn linger(&self) {
        self.is_lingering.store(true, Ordering::Release);
        let open = self.lock();
        let http2 = open.values().filter(|connection| connection.is_http2.load(Ordering::Relaxed));
        http2.for_each(|connection| connection.close());
    }

    /// Resolves when nothing has happened on any connection for `quiet`; at once without any, if no more are accepted.
    pub(super) async fn quiet(&self, quiet: Duration, accepts: bool) {
        let (mut checks, mut since, mut uses) = (interval(QUIET_CHECK), Instant::now(), 0);
        loop {
            checks.tick().await;
            let is_busy = {
                let open = self.lock();
                if open.is_empty() && !accepts {
                    return;
                }
                open.values().any(|connection| !connection.is_idle())
            };
            let now = self.uses.load(Ordering::Relaxed);
            if is_busy || now != std::mem::replace(&mut uses, now) {
                since = Instant::now();
            }
            if since.elapsed() >= quiet {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.all.lock().remove(&self.0.id);
    }
}

impl Connection {
    /// Whether no request is being served.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Asks the connection to close as soon as it is idle.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        self.close.notify_one();
    }

    /// Resolves when the connection should close.
    pub(super) async fn closing(&self) {
        self.close.notified().await;
    }

    /// A request begins, and lasts until its response is sent.
    pub(super) fn request(self: &Arc<Self>, version: Version) -> InFlight {
        self.is_http2.store(version == Version::HTTP_2, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        InFlight(self.clone())
    }
}

/// A request that is being served.
pub(super) struct InFlight(Arc<Connection>);

impl InFlight {
    /// The same response; the request ends with its last byte. A small body is as good as sent.
    pub(super) fn until_sent(self, mut response: Response) -> Response {
        if self.0.all.is_lingering.load(Ordering::Relaxed) {
            if self.0.is_http2.load(Ordering::Relaxed) {
                self.0.close();
            } else {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
        }
        if response.body().size_hint().exact().is_some_and(|bytes| bytes <= SMALL_BODY_BYTES) {
            return response;
        }
        response.map(|body| Body::new(SentBody { body, _request: self }))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let InFlight(connection) = self;
        let now = connection.all.uses.fetch_add(1, Ordering::Relaxed);
        connection.last_use.store(now, Ordering::Relaxed);
        connection.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a response whose request lasts as long.
struct SentBody {
    body: Body,
    _request: InFlight,
}

impl HttpBody for SentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
