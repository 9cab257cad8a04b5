//! Answers the calls of other nodes on a listener of its own, never on the port of clients.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use coordinator::{Call, Inbound};
use ledger::postgres::Feed;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Duration, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::connected::{ConnectedNodes, Newest};
use crate::connection::{
    BEAT, Ear, Incoming, MAX_HANDSHAKE, Outbox, Outgoing, framed, next_frame, send_all, send_now,
};
use crate::frame::{Downward, MAX_FRAME_BYTES, SHARD, Upward, VERSION};
use crate::tail::Sending;
use crate::tls::{ClusterTls, is_other_key};

/// Most connections of other nodes at one time.
const MAX_CONNECTIONS: usize = 256;
/// Most calls of one node that are in work at one time.
const MAX_CALLS: usize = 65_536;
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers other nodes until `shutdown` resolves, and feeds those that follow this one. `node` is the name of this node,
/// `connected` gets those that are connected.
pub async fn serve(
    listener: TcpListener,
    tls: ClusterTls,
    node: impl Into<String>,
    inbound: Inbound,
    feed: Feed,
    connected: ConnectedNodes,
    shutdown: impl Future<Output = ()>,
) {
    let service = Service { tls, node: node.into(), inbound, feed, connected };
    let service = Arc::new(service);
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut open = JoinSet::new();
    let accepting = async {
        loop {
            let Ok(permit) = connections.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((tcp, from)) => {
                    let service = service.clone();
                    open.spawn(async move {
                        service.connection(tcp, from).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection of another node was not accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
            while open.try_join_next().is_some() {}
        }
    };
    tokio::select! {
        () = accepting => {}
        () = shutdown => {}
    }
}

struct Service {
    tls: ClusterTls,
    node: String,
    inbound: Inbound,
    feed: Feed,
    connected: ConnectedNodes,
}

type Stream = TlsStream<TcpStream>;

impl Service {
    async fn connection(&self, tcp: TcpStream, from: SocketAddr) {
        let greeted = match timeout(MAX_HANDSHAKE, self.greet(tcp)).await {
            Ok(greeted) => greeted,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        };
        let greeting = match greeted {
            Ok(greeting) => greeting,
            Err(error) if is_other_key(&error) => {
                return tracing::error!(
                    %from, %error,
                    "a node was refused: its cluster key differs from the key of this node; give all nodes the same key file"
                );
            }
            Err(error) => return tracing::warn!(%from, %error, "a connection to the relay failed"),
        };
        let Greeting { node, instance, connection, incoming, outgoing, ear } = greeting;
        let replaced = CancellationToken::new();
        let (running, ended) = watch::channel(());
        let newest = Newest {
            node: node.clone(),
            number: connection,
            ear: ear.clone(),
            replaced: replaced.clone(),
            ended,
        };
        if !self.replace(instance, newest).await {
            return tracing::warn!(%node, %from, "an old connection of a node came after its successor");
        }
        let mut calls = Calls::default();
        let end = tokio::select! {
            end = self.run(&node, incoming, outgoing, ear, &mut calls) => end,
            () = replaced.cancelled() => Ok(()),
        };
        // The node sends what was not answered again, over its next connection.
        calls.shutdown().await;
        drop(running);
        let why = end.err().map(|error| error.to_string());
        tracing::info!(%node, %from, why, "a connection of another node ended");
        let mut nodes = self.connected.by_instance();
        if nodes.get(&instance).is_some_and(|newest| newest.number == connection) {
            nodes.remove(&instance);
        }
    }

    async fn greet(&self, tcp: TcpStream) -> io::Result<Greeting> {
        tcp.set_nodelay(true)?;
        let stream = TlsAcceptor::from(self.tls.server.clone()).accept(tcp).await?;
        let (mut incoming, mut outgoing, ear) = framed(stream);
        let hello = next_frame(&mut incoming).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let Ok(Upward::Hello { version, node, instance, connection }) = Upward::decode(&hello) else {
            return Err(io::Error::other("the node did not greet"));
        };
        let welcome = Downward::Welcome { version: VERSION, node: self.node.clone() };
        send_now(&mut outgoing, welcome.encode()).await?;
        if version != VERSION {
            let what = format!("the node {node} speaks version {version} of the relay, this node {VERSION}");
            return Err(io::Error::other(what));
        }
        Ok(Greeting { node, instance, connection, incoming, outgoing, ear })
    }

    /// Makes a connection the newest of its node. A call that came over the connection before it is decided first or not at
    /// all, so that a repeat never precedes its original. False when there is a newer one.
    async fn replace(&self, instance: u64, newest: Newest) -> bool {
        let earlier = {
            let mut nodes = self.connected.by_instance();
            if nodes.get(&instance).is_some_and(|known| known.number > newest.number) {
                return false;
            }
            nodes.insert(instance, newest)
        };
        if let Some(mut earlier) = earlier {
            earlier.replaced.cancel();
            while earlier.ended.changed().await.is_ok() {}
        }
        true
    }

    async fn run(
        &self,
        node: &str,
        mut incoming: Incoming<Stream>,
        outgoing: Outgoing<Stream>,
        ear: Ear,
        calls: &mut Calls,
    ) -> io::Result<()> {
        let (outbox, frames) = Outbox::new();
        let (mut sending, node) = (Sending::default(), Arc::<str>::from(node));
        let (mut notices, mut follower) = (self.inbound.notices(), self.inbound.configuration_follower());
        let notify = async {
            while let Some(mut notice) = notices.next(BEAT).await {
                if let Some(now) = self.inbound.now_if_owner() {
                    notice.now = now;
                    outbox.send_small(Downward::Notice { notice }.encode());
                }
            }
        };
        let read = async {
            while let Some(frame) = next_frame(&mut incoming).await? {
                calls.remove_done();
                match Upward::decode(&frame) {
                    Ok(Upward::Ask { id, shard: SHARD, epoch, call }) => {
                        if calls.tasks.len() >= MAX_CALLS {
                            outbox.send(Downward::Overloaded { id }.encode()).await;
                        } else {
                            calls.spawn(id, epoch, call, self.inbound.clone(), outbox.clone());
                        }
                    }
                    Ok(Upward::Ask { id, shard, .. }) => {
                        let what = format!("there is no shard {shard}");
                        outbox.send(Downward::NotUnderstood { id, what }.encode()).await;
                    }
                    Ok(Upward::Cancel { id }) => calls.cancel(id).await,
                    Ok(Upward::Ping {}) => drop(outbox.send(Downward::Pong {}.encode()).await),
                    Ok(Upward::Tail { shard: SHARD, epoch, after }) => {
                        let (feed, inbound) = (self.feed.clone(), self.inbound.clone());
                        sending.begin(feed, node.clone(), (epoch, after), inbound, outbox.clone());
                    }
                    Ok(Upward::Received { next }) => sending.received(next),
                    Ok(Upward::Untail {}) => sending.end(),
                    Ok(Upward::Followed { change }) => follower.followed(change),
                    Ok(Upward::Owns { owner }) => self.inbound.owner_announced(owner),
                    Ok(Upward::Hello { .. } | Upward::Tail { .. }) => {}
                    Err(error) => {
                        // A newer node may say things that this one does not know.
                        let Some(id) = Upward::id_of_ask(&frame) else { continue };
                        let what = error.to_string();
                        outbox.send(Downward::NotUnderstood { id, what }.encode()).await;
                    }
                }
            }
            Ok(())
        };
        tokio::select! {
            ended = read => ended,
            sent = send_all(outgoing, frames) => sent,
            () = notify => Ok(()),
            () = ear.silent() => Err(io::Error::new(io::ErrorKind::TimedOut, "the node was silent for too long")),
        }
    }
}

struct Greeting {
    node: String,
    instance: u64,
    connection: u64,
    incoming: Incoming<Stream>,
    outgoing: Outgoing<Stream>,
    ear: Ear,
}

/// The calls of one connection that are in work, by their ids.
struct Calls {
    tasks: HashMap<u64, JoinHandle<()>>,
    /// The calls that may be given up.
    droppable: HashSet<u64>,
    /// One entry for each call that is done.
    done: (mpsc::UnboundedSender<u64>, mpsc::UnboundedReceiver<u64>),
}

impl Default for Calls {
    fn default() -> Calls {
        Calls { tasks: HashMap::new(), droppable: HashSet::new(), done: mpsc::unbounded_channel() }
    }
}

impl Calls {
    fn spawn(&mut self, id: u64, epoch: u64, call: Call, inbound: Inbound, outbox: Outbox) {
        if call.may_be_dropped() {
            self.droppable.insert(id);
        }
        let done = self.done.0.clone();
        let task = tokio::spawn(async move {
            let answer = match inbound.call(call, epoch).await {
                Ok(reply) => Downward::Answer { id, reply, durable: inbound.durable() },
                Err(hint) => Downward::NotOwner { id, hint },
            };
            let mut frame = answer.encode();
            if frame.len() > MAX_FRAME_BYTES {
                frame = Downward::NotUnderstood { id, what: "the answer is too large".to_owned() }.encode();
            }
            outbox.send(frame).await;
            let _ = done.send(id);
        });
        self.tasks.insert(id, task);
    }

    /// Gives a call up. When this returns, the coordinator knows that nobody waits for the answer: what the node asks next
    /// is decided after that.
    async fn cancel(&mut self, id: u64) {
        if self.droppable.remove(&id)
            && let Some(task) = self.tasks.remove(&id)
        {
            task.abort();
            let _ = task.await;
        }
    }

    fn remove_done(&mut self) {
        while let Ok(id) = self.done.1.try_recv() {
            self.tasks.remove(&id);
            self.droppable.remove(&id);
        }
    }

    /// Gives all calls up. What was not decided yet is never decided.
    async fn shutdown(&mut self) {
        self.tasks.values().for_each(JoinHandle::abort);
        for (_, task) in self.tasks.drain() {
            let _ = task.await;
        }
    }
}

/// A service that ends takes its calls with it.
impl Drop for Calls {
    fn drop(&mut self) {
        self.tasks.values().for_each(JoinHandle::abort);
    }
}
