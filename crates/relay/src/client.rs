//! The connection to another node: calls go out, answers come back. It is made again whenever it is lost.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use authority::Position;
use backon::{BackoffBuilder, ExponentialBuilder};
use coordinator::{BoxFuture, Call, CallReply, Notices, OwnerHint, Peer, PeerError};
use ledger::postgres::Kept;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, interval, sleep, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use crate::connection::{
    BEAT, Ear, Incoming, MAX_HANDSHAKE, Outbox, Outgoing, framed, next_frame, send_all, send_now,
};
use crate::frame::{Downward, MAX_FRAME_BYTES, SHARD, Upward, VERSION};
use crate::tail::Receiving;
use crate::tls::{ClusterTls, is_other_key};

#[cfg(test)]
mod tests;

/// The pauses between two attempts to connect.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Another node. The connection is kept up until this is dropped.
pub struct RemotePeer {
    shared: Arc<Shared>,
    _connecting: AbortOnDropHandle<()>,
}

struct Shared {
    address: String,
    links: watch::Sender<Option<Arc<Link>>>,
    next_id: AtomicU64,
    /// The newest position that the node has called durable in an answer.
    durable: AtomicU64,
    /// Where the notices of the node go.
    follower: Mutex<Option<Notices>>,
    /// Where the batches of the node go.
    receiving: Mutex<Option<Receiving>>,
}

/// Where the answer to a call goes.
type AnswerSender = oneshot::Sender<Result<CallReply, PeerError>>;

/// A connection that is up.
struct Link {
    outbox: Outbox,
    /// None once the connection is lost.
    pending: Mutex<Option<HashMap<u64, AnswerSender>>>,
    /// The newest change of the configuration of which the node has told.
    change: watch::Sender<u64>,
}

impl RemotePeer {
    /// Connects to the node at `address`, a host and a port, and again whenever the connection is lost. `node` is the name
    /// of this node. Must be called within a runtime.
    pub fn connect(address: impl Into<String>, node: impl Into<String>, tls: ClusterTls) -> RemotePeer {
        let shared = Arc::new(Shared {
            address: address.into(),
            links: watch::Sender::new(None),
            next_id: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            follower: Mutex::default(),
            receiving: Mutex::default(),
        });
        let connecting = tokio::spawn(keep_connected(shared.clone(), node.into(), tls));
        RemotePeer { shared, _connecting: AbortOnDropHandle::new(connecting) }
    }

    /// Resolves once the node is connected.
    pub async fn connected(&self) {
        let _ = self.shared.links.subscribe().wait_for(Option::is_some).await;
    }

    /// Resolves once the node is not connected.
    pub async fn disconnected(&self) {
        let _ = self.shared.links.subscribe().wait_for(Option::is_none).await;
    }
}

impl Peer for RemotePeer {
    fn call(&self, call: Call, epoch: u64, give_up: Instant) -> BoxFuture<'_, Result<CallReply, PeerError>> {
        Box::pin(async move {
            let mut links = self.shared.links.subscribe();
            let up = async { links.wait_for(Option::is_some).await.ok().and_then(|link| link.clone()) };
            let Ok(Some(link)) = timeout_at(give_up, up).await else { return Err(PeerError::Unreachable) };
            let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
            let frame = Upward::Ask { id, shard: SHARD, epoch, call }.encode();
            if frame.len() > MAX_FRAME_BYTES {
                return Err(PeerError::NotUnderstood("the call is too large".to_owned()));
            }
            let (sender, answer) = oneshot::channel();
            let Some(_waiting) = Waiting::register(&link, id, sender) else { return Err(PeerError::Lost) };
            if !link.outbox.send(frame).await {
                return Err(PeerError::Lost);
            }
            answer.await.unwrap_or(Err(PeerError::Lost))
        })
    }

    fn durable(&self) -> Position {
        Position(self.shared.durable.load(Ordering::Acquire))
    }

    fn follow(&self, notices: Notices) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut links = self.shared.links.subscribe();
            *lock(&self.shared.follower) = Some(notices.clone());
            let _following = Following(&self.shared);
            let link = links.wait_for(Option::is_some).await.ok().and_then(|link| link.clone());
            let Some(link) = link else { return };
            // From here on the owner waits for this node.
            link.outbox.send_small(Upward::Followed { change: 0 }.encode());
            notices.post_all();
            let is_other = |now: &Option<Arc<Link>>| now.as_ref().is_none_or(|now| !Arc::ptr_eq(now, &link));
            tokio::select! {
                _ = links.wait_for(is_other) => {}
                () = link.tell_what_is_followed(&notices) => {}
            }
        })
    }

    fn announce_owner(&self, owner: OwnerHint) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut links = self.shared.links.subscribe();
            loop {
                if let Some(link) = &*links.borrow_and_update() {
                    link.outbox.send_small(Upward::Owns { owner: owner.clone() }.encode());
                }
                if links.changed().await.is_err() {
                    return;
                }
            }
        })
    }

    fn tail(&self, epoch: u64, kept: Kept) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let mut links = self.shared.links.subscribe();
            let link = links.wait_for(Option::is_some).await.ok().and_then(|link| link.clone());
            let (Some(link), Some(after)) = (link, kept.end()) else { return true };
            let (receiving, ended) = Receiving::new(kept);
            *lock(&self.shared.receiving) = Some(receiving);
            let _tailing = Tailing { shared: &self.shared, link: link.clone() };
            if !link.outbox.send_small(Upward::Tail { shard: SHARD, epoch, after }.encode()) {
                return true;
            }
            let is_other = |now: &Option<Arc<Link>>| now.as_ref().is_none_or(|now| !Arc::ptr_eq(now, &link));
            tokio::select! {
                biased;
                _ = links.wait_for(is_other) => true,
                _ = ended => false,
            }
        })
    }
}

/// Ends a stream when nobody receives it any more, and tells the owner, whose answers may wait for a receipt.
struct Tailing<'a> {
    shared: &'a Shared,
    link: Arc<Link>,
}

impl Drop for Tailing<'_> {
    fn drop(&mut self) {
        *lock(&self.shared.receiving) = None;
        self.link.outbox.send_small(Upward::Untail {}.encode());
    }
}

/// Takes the follower away when nobody follows any more.
struct Following<'a>(&'a Shared);

impl Drop for Following<'_> {
    fn drop(&mut self) {
        *lock(&self.0.follower) = None;
    }
}

/// A call that waits for its answer. When it is given up, the other node is told.
struct Waiting<'a> {
    link: &'a Link,
    id: u64,
}

impl Waiting<'_> {
    fn register(link: &Link, id: u64, sender: AnswerSender) -> Option<Waiting<'_>> {
        lock(&link.pending).as_mut()?.insert(id, sender);
        Some(Waiting { link, id })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let is_unanswered =
            lock(&self.link.pending).as_mut().is_some_and(|pending| pending.remove(&self.id).is_some());
        if is_unanswered {
            self.link.outbox.send_small(Upward::Cancel { id: self.id }.encode());
        }
    }
}

async fn keep_connected(shared: Arc<Shared>, node: String, tls: ClusterTls) {
    let pauses = ExponentialBuilder::new().without_max_times().with_jitter();
    let pauses = pauses.with_min_delay(MIN_PAUSE).with_max_delay(MAX_PAUSE);
    let (mut pause, mut reported) = (pauses.build(), false);
    let instance = getrandom::u64().unwrap_or_default();
    for connection in 1.. {
        let hello = Upward::Hello { version: VERSION, node: node.clone(), instance, connection };
        let greeted = match timeout(MAX_HANDSHAKE, greet(&shared.address, &tls, hello)).await {
            Ok(greeted) => greeted,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        };
        match greeted {
            Ok((peer, connected)) => {
                tracing::info!(%peer, address = shared.address, "connected to another node");
                let ended = run(&shared, connected).await;
                let why = ended.err().map(|error| error.to_string());
                tracing::warn!(%peer, address = shared.address, why, "the connection to another node was lost");
                (pause, reported) = (pauses.build(), false);
            }
            Err(error) if is_other_key(&error) => {
                tracing::error!(
                    address = shared.address, %error,
                    "a node was refused: its cluster key differs from the key of this node; give all nodes the same key file"
                );
            }
            Err(error) if !reported => {
                tracing::warn!(address = shared.address, %error, "cannot connect to another node; trying again");
                reported = true;
            }
            Err(_) => {}
        }
        sleep(pause.next().unwrap_or(MAX_PAUSE)).await;
    }
}

type Connected = (Incoming<TlsStream<TcpStream>>, Outgoing<TlsStream<TcpStream>>, Ear);

/// Connects and greets. Returns the name of the other node.
async fn greet(address: &str, tls: &ClusterTls, hello: Upward) -> io::Result<(String, Connected)> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    let stream = TlsConnector::from(tls.client.clone()).connect(tls.name.clone(), tcp).await?;
    let (mut incoming, mut outgoing, ear) = framed(stream);
    send_now(&mut outgoing, hello.encode()).await?;
    let welcome = next_frame(&mut incoming).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    match Downward::decode(&welcome) {
        Ok(Downward::Welcome { version: VERSION, node }) => Ok((node, (incoming, outgoing, ear))),
        Ok(Downward::Welcome { version, .. }) => Err(io::Error::other(format!(
            "the node speaks version {version} of the relay, this node {VERSION}"
        ))),
        _ => Err(io::Error::other("the node did not greet")),
    }
}

/// Carries calls until the connection is lost.
async fn run(shared: &Shared, (mut incoming, outgoing, ear): Connected) -> io::Result<()> {
    let (outbox, frames) = Outbox::new();
    let pending = Mutex::new(Some(HashMap::new()));
    let link = Arc::new(Link { outbox: outbox.clone(), pending, change: watch::Sender::new(0) });
    let _up = Up { shared, link: link.clone() };
    shared.links.send_replace(Some(link.clone()));
    let read = async {
        while let Some(frame) = next_frame(&mut incoming).await? {
            link.receive(&frame, shared);
        }
        Ok(())
    };
    let ping = async {
        let mut beats = interval(BEAT);
        while outbox.send_small(Upward::Ping {}.encode()) {
            beats.tick().await;
        }
    };
    tokio::select! {
        ended = read => ended,
        sent = send_all(outgoing, frames) => sent,
        () = ping => Ok(()),
        () = ear.silent() => Err(io::Error::new(io::ErrorKind::TimedOut, "the node was silent for too long")),
    }
}

/// The link of a connection, until the connection is lost.
struct Up<'a> {
    shared: &'a Shared,
    link: Arc<Link>,
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.shared.links.send_replace(None);
        // Whoever waits learns that the connection is lost.
        *lock(&self.link.pending) = None;
    }
}

impl Link {
    /// Tells the other node which of its changes of the configuration this node has followed, as long as the connection lives.
    async fn tell_what_is_followed(&self, notices: &Notices) {
        let mut changes = self.change.subscribe();
        changes.mark_changed();
        while changes.changed().await.is_ok() {
            let change = *changes.borrow_and_update();
            notices.followed_all().await;
            self.outbox.send_small(Upward::Followed { change }.encode());
        }
    }

    fn receive(&self, frame: &[u8], shared: &Shared) {
        let (id, answer) = match Downward::decode(frame) {
            Ok(Downward::Answer { id, reply, durable }) => {
                shared.durable.fetch_max(durable.0, Ordering::AcqRel);
                (id, Ok(reply))
            }
            Ok(Downward::NotOwner { id, hint }) => (id, Err(PeerError::NotOwner(hint))),
            Ok(Downward::NotUnderstood { id, what }) => (id, Err(PeerError::NotUnderstood(what))),
            Ok(Downward::Overloaded { id }) => (id, Err(PeerError::Overloaded)),
            Ok(Downward::Notice { notice }) => {
                if let Some(notices) = &*lock(&shared.follower) {
                    notices.post(notice);
                }
                // After that, so that what is followed then includes it.
                if let Some(change) = notice.change {
                    self.change.send_replace(change);
                }
                return;
            }
            Ok(Downward::Pong {} | Downward::Welcome { .. }) => return,
            Ok(fed @ (Downward::Batch { .. } | Downward::Durable { .. } | Downward::TailEnd {})) => {
                let mut receiving = lock(&shared.receiving);
                if receiving.as_ref().is_some_and(|receiving| !receiving.receive(fed, &self.outbox)) {
                    *receiving = None;
                }
                return;
            }
            Err(error) => match Downward::id_of_answer(frame) {
                Some(id) => (id, Err(PeerError::NotUnderstood(error.to_string()))),
                // A newer node may say things that this one does not know.
                None => return,
            },
        };
        // An answer that comes twice, or after its caller has left, finds nobody.
        let waiting = lock(&self.pending).as_mut().and_then(|pending| pending.remove(&id));
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is one assignment, so the content is whole also after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
