//! The nodes that serve a test. By default it is one, which owns a ledger in files. With `LESSOR_TEST_NODES=3` in the
//! environment there are three with one ledger in PostgreSQL: one owns it, the others forward to it over TLS. They
//! listen on one port, and the kernel gives each connection to any of them.

// Each test binary has its own copy of this module and uses a part of it.
#![allow(dead_code)]

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use authority::Position;
use coordinator::{
    BoxFuture, Call, CallReply, Handle, NodeAddress, Notices, Peer, PeerError, Read, RegistryCall, Request,
    Router, RouterOptions, Running,
};
use futures_util::FutureExt;
use ledger::{ClusterId, Storage, file, postgres};
use relay::{ClusterTls, RemotePeer};
use server::{App, Drained, Limits, Listener};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

const KEY: &[u8] = b"the key of a cluster, which has 32 bytes at least";
const CLUSTER: postgres::Cluster =
    postgres::Cluster { id: ClusterId([1; 16]), shards: 1, key_print: [9; 16] };
const TEMPLATE: &str = "nodes";
const BACKLOG: u32 = 1_024;
/// The connections of a channel: so many that they seldom lead to one node.
const CONNECTIONS: usize = 6;

tokio::task_local! {
    static THROUGH_AN_EDGE: EdgeOf;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EdgeOf {
    Owner,
    EarlierOwner,
}

/// Runs a test with a server that does not own its ledger.
pub(crate) async fn through_an_edge(test: impl Future<Output = ()>) {
    THROUGH_AN_EDGE.scope(EdgeOf::Owner, test).await;
}

/// The same with an owner of an earlier version, which does not know the calls about identities that hold leases.
pub(crate) async fn through_an_edge_of_an_earlier_owner(test: impl Future<Output = ()>) {
    THROUGH_AN_EDGE.scope(EdgeOf::EarlierOwner, test).await;
}

fn is_edge() -> bool {
    THROUGH_AN_EDGE.try_with(|_| ()).is_ok()
}

struct EarlierOwner(Arc<RemotePeer>);

impl Peer for EarlierOwner {
    fn call(&self, call: Call, epoch: u64, give_up: Instant) -> BoxFuture<'_, Result<CallReply, PeerError>> {
        let is_known = match &call {
            Call::Ask(Request::Read(read)) => !matches!(read, Read::Held(_) | Read::ChargeUpload(_)),
            Call::Registry(call) => !matches!(
                call,
                RegistryCall::NoteLeases { .. }
                    | RegistryCall::RefundUpload { .. }
                    | RegistryCall::SetRefused { .. }
                    | RegistryCall::Refused { .. }
            ),
            _ => true,
        };
        if is_known {
            return self.0.call(call, epoch, give_up);
        }
        Box::pin(async { Err(PeerError::NotUnderstood("a call is not known to this version".into())) })
    }

    fn durable(&self) -> Position {
        self.0.durable()
    }

    fn follow(&self, notices: Notices) -> BoxFuture<'_, ()> {
        self.0.follow(notices)
    }
}

/// Whether several nodes serve each test.
pub(crate) fn are_several() -> bool {
    count() > 1
}

pub(crate) fn count() -> usize {
    match std::env::var("LESSOR_TEST_NODES") {
        Ok(nodes) if !is_edge() => nodes.parse().expect("LESSOR_TEST_NODES is a number"),
        _ => 1,
    }
}

/// The client of a test. With several nodes each request may be answered by any of them, so no connection is used twice.
pub(crate) fn http_client() -> reqwest::Client {
    let idle = if are_several() { 0 } else { usize::MAX };
    reqwest::Client::builder().no_proxy().pool_max_idle_per_host(idle).build().unwrap()
}

/// A channel of gRPC. With several nodes each call of it may be answered by any of them.
pub(crate) async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    if are_several() {
        Channel::balance_list(std::iter::repeat_n(endpoint, CONNECTIONS))
    } else {
        endpoint.connect().await.unwrap()
    }
}

/// Opens the ledger of a directory, a new one if there is none.
pub(crate) async fn open_ledger(directory: &Path) -> Storage {
    let directory = directory.to_owned();
    let open = move || {
        if are_several() {
            return open_database(&directory);
        }
        let options = file::Options {
            create: Some(CLUSTER.id),
            segment_bytes: 32 << 20,
            preallocate_bytes: 1 << 20,
            ..file::Options::default()
        };
        file::open_data_dir(&directory, options).unwrap().0
    };
    if are_several() { spawn_blocking(open).await.unwrap() } else { open() }
}

fn open_database(directory: &Path) -> Storage {
    let name = directory.join("database");
    let url = std::fs::read_to_string(&name).unwrap_or_else(|_| {
        std::fs::create_dir_all(directory).unwrap();
        let url = create_database(directory);
        std::fs::write(name, &url).unwrap();
        url
    });
    postgres::open(server(&url), postgres::Options::new("owner", CLUSTER.key_print)).unwrap()
}

/// A copy of a database with an empty ledger, which takes less time than to create one. Copies whose tests are over, and
/// with them their directories, are dropped.
fn create_database(directory: &Path) -> String {
    static INITIALIZED: OnceLock<()> = OnceLock::new();
    static COPIES: Mutex<Vec<(String, PathBuf)>> = Mutex::new(Vec::new());
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let shared = test_servers::postgres::shared();
    INITIALIZED.get_or_init(|| {
        shared.execute("postgres", &format!("CREATE DATABASE {TEMPLATE}"));
        postgres::initialize(&server(&shared.url(TEMPLATE)), CLUSTER).unwrap();
    });
    let copy = format!("{TEMPLATE}_{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let over: Vec<String> = {
        let mut copies = COPIES.lock().unwrap();
        let over =
            copies.extract_if(.., |(_, directory)| !directory.exists()).map(|(name, _)| name).collect();
        copies.push((copy.clone(), directory.to_owned()));
        over
    };
    for name in over {
        shared.execute("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
    }
    shared.execute("postgres", &format!("CREATE DATABASE {copy} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY"));
    shared.url(&copy)
}

fn server(url: &str) -> postgres::Server {
    postgres::Server { config: url.parse().unwrap(), tls: None, unsafe_no_sync: true }
}

/// The handles of all nodes.
pub(crate) async fn handles(running: &Running) -> Vec<Handle> {
    if !are_several() && !is_edge() {
        return vec![running.handle.clone()];
    }
    let tls = ClusterTls::from_cluster_key(KEY).unwrap();
    let (owner, handle) = Router::new(RouterOptions::default());
    owner.own(running.report.epoch, &running.handle);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: Arc<str> = listener.local_addr().unwrap().to_string().into();
    let feed = postgres::Feed::new(postgres::FeedOptions::default());
    let serving = relay::serve(
        listener,
        tls.clone(),
        "owner",
        owner.inbound(),
        feed,
        relay::ConnectedNodes::default(),
        std::future::pending(),
    );
    // The connections between nodes last as long as the test's runtime, and without its router a handle would say that the
    // coordinator has stopped.
    tokio::spawn(async move {
        serving.await;
        drop(owner);
    });
    let mut handles = if is_edge() { Vec::new() } else { vec![handle] };
    while handles.len() < count() {
        let (edge, handle) = Router::new(RouterOptions::default());
        let peer = Arc::new(RemotePeer::connect(&*address, "edge", tls.clone()));
        peer.connected().await;
        let owner = NodeAddress { node: "owner".into(), address: address.clone() };
        let is_earlier = THROUGH_AN_EDGE.try_with(|of| *of == EdgeOf::EarlierOwner).unwrap_or(false);
        let peer: Arc<dyn Peer> = if is_earlier { Arc::new(EarlierOwner(peer)) } else { peer };
        edge.forward(running.report.epoch, owner, peer);
        tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(edge);
        });
        handles.push(handle);
    }
    handles
}

/// A listener for each node, all on one port.
pub(crate) async fn listen(address: &str) -> Vec<TcpListener> {
    if !are_several() {
        return vec![TcpListener::bind(address).await.unwrap()];
    }
    let mut address: SocketAddr = address.parse().unwrap();
    let mut listeners = Vec::new();
    for _ in 0..count() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseport(true).unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(BACKLOG).unwrap();
        address = listener.local_addr().unwrap();
        listeners.push(listener);
    }
    listeners
}

/// Serves on all nodes until `stopped` resolves. Whoever aborts it aborts all.
pub(crate) fn serve(
    nodes: Vec<(Listener, App)>,
    limits: Limits,
    stopped: oneshot::Receiver<()>,
) -> JoinHandle<Drained> {
    let stopped = stopped.map(|_| ()).shared();
    let mut serving = JoinSet::new();
    for (listener, app) in nodes {
        serving.spawn(server::serve_with(listener, app, limits, stopped.clone()));
    }
    tokio::spawn(async move {
        let drained = serving.join_all().await;
        Drained { cut_off: drained.iter().map(|drained| drained.cut_off).sum() }
    })
}
