//! Nodes and short ways to say what the tests say often.

use std::sync::Arc;
use std::time::Duration;

use authority::command::{Grant, LeaseTasks, ReportCompletion, SubmitTask};
use authority::{Contract, Digest, Properties, QueueKey, Scope, TaskId};
use coordinator::{Handle, NodeAddress, Options, Router, RouterOptions, Running, StartError};
use ledger::memory::MemoryStorage;
use ledger::postgres::{Feed, FeedOptions};
use relay::{ClusterTls, ConnectedNodes, RemotePeer};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

pub(crate) const KEY: &[u8] = b"the key of a cluster, which has 32 bytes at least";
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A node: what routes its requests, and its listener for other nodes.
pub(crate) struct Node {
    pub router: Router,
    pub handle: Handle,
    pub address: String,
    pub tls: ClusterTls,
    pub feed: Feed,
    pub connected: ConnectedNodes,
    _serving: AbortOnDropHandle<()>,
}

impl Node {
    pub(crate) async fn start_with(key: &[u8], options: RouterOptions) -> Node {
        let (router, handle) = Router::new(options);
        let (feed, connected) = (Feed::new(FeedOptions::default()), ConnectedNodes::default());
        let tls = ClusterTls::from_cluster_key(key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = relay::serve(
            listener,
            tls.clone(),
            "node",
            router.inbound(),
            feed.clone(),
            connected.clone(),
            std::future::pending(),
        );
        let _serving = AbortOnDropHandle::new(tokio::spawn(serving));
        Node { router, handle, address, tls, feed, connected, _serving }
    }

    pub(crate) async fn cluster(nodes: usize) -> Vec<Node> {
        Node::cluster_with(nodes, RouterOptions::default()).await
    }

    pub(crate) async fn cluster_with(nodes: usize, options: RouterOptions) -> Vec<Node> {
        let mut cluster = Vec::new();
        for _ in 0..nodes {
            cluster.push(Node::start_with(KEY, options).await);
        }
        cluster
    }

    /// Starts a coordinator in this node, again while another owner writes at the same moment.
    pub(crate) fn start(&self, storage: &MemoryStorage) -> Running {
        loop {
            let options = Options { metrics: self.router.metrics(), ..Options::default() };
            match coordinator::start(storage.open(), options) {
                Ok(running) => return running,
                Err(StartError::Failed(refused)) => println!("start again: {refused}"),
                Err(error) => panic!("the coordinator does not start: {error}"),
            }
        }
    }

    /// Makes this node the owner, as its own supervisor and those of the other nodes would.
    pub(crate) fn own(&self, running: &Running, nodes: &[Node]) {
        let epoch = running.report.epoch;
        self.router.own(epoch, &running.handle);
        for node in nodes.iter().filter(|node| node.address != self.address) {
            node.forward_to(epoch, self.address.clone());
        }
    }

    /// Sends the requests of this node to another one.
    pub(crate) fn forward_to(&self, epoch: u64, address: String) {
        let peer = RemotePeer::connect(address.clone(), "node", self.tls.clone());
        let owner = NodeAddress { node: "owner".into(), address: address.into() };
        self.router.forward(epoch, owner, Arc::new(peer));
    }

    pub(crate) fn name(&self) -> NodeAddress {
        NodeAddress { node: "node".into(), address: self.address.as_str().into() }
    }
}

pub(crate) fn scope() -> Scope {
    Scope { tenant: Arc::from("default"), workspace: Arc::from("default") }
}

pub(crate) fn submit(id: u128, queue: &str) -> SubmitTask {
    SubmitTask {
        id: TaskId(id),
        queue: Arc::new(QueueKey { scope: scope(), name: Arc::from(queue) }),
        payload: Arc::from(&b"{}"[..]),
        priority: 0,
        delay_ms: 0,
        properties: Arc::new(Properties::default()),
        options: None,
        operation: None,
    }
}

pub(crate) fn lease(worker: &str, queue: &str) -> LeaseTasks {
    LeaseTasks {
        scope: scope(),
        worker: Arc::from(worker),
        session: None,
        queues: vec![Arc::from(queue)],
        properties: Arc::new(Properties::default()),
        max_tasks: 1,
        request: None,
        contract: Contract::Leases,
    }
}

pub(crate) fn completion(worker: &str, grant: &Grant) -> ReportCompletion {
    ReportCompletion {
        lease: authority::LeaseRef { worker: Arc::from(worker), ..grant.lease_ref() },
        digest: Digest([7; 16]),
        result: Arc::from(&b"1"[..]),
        details: None,
    }
}
