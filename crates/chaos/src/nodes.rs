//! The servers that requests go to: one server, or the nodes of a cluster, of which each request takes one at random.
//!
//! Clients of a cluster never retry by themselves. Only a request whose node was taken down is sent again, elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use contract_clients::{HttpClient, Timeouts};
use tokio::sync::watch;

use crate::rpc;

/// Longer than any stop of the server, shorter than a test may hang.
pub(crate) const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(2), call: Duration::from_secs(8) };
/// Longer than a node holds a request, so that it is the node that refuses.
pub(crate) const CLUSTER_TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(10), call: Duration::from_secs(40) };

pub(crate) struct Nodes {
    nodes: Vec<Arc<Node>>,
    is_cluster: bool,
}

pub(crate) struct Node {
    address: String,
    /// New for each start of the process, so that no request meets a connection to a process that is gone.
    clients: Mutex<Clients>,
    condition: watch::Sender<Condition>,
    /// How often it was taken down.
    downs: AtomicU64,
}

#[derive(Clone)]
struct Clients {
    http: HttpClient,
    rpc: rpc::Client,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Up,
    /// It gets no new requests, and answers those that it has.
    Leaving,
    /// It answers nothing any more: whoever waits for it goes elsewhere.
    Down,
}

/// A request at a node.
pub(crate) struct Visit {
    node: Arc<Node>,
    clients: Clients,
    condition: watch::Receiver<Condition>,
    downs: u64,
}

impl Nodes {
    pub(crate) fn single(address: &str) -> Result<Nodes> {
        Ok(Nodes { nodes: vec![Arc::new(Node::new(address, TIMEOUTS)?)], is_cluster: false })
    }

    pub(crate) fn cluster(addresses: &[String]) -> Result<Nodes> {
        let nodes = addresses.iter().map(|address| Ok(Arc::new(Node::new(address, CLUSTER_TIMEOUTS)?)));
        Ok(Nodes { nodes: nodes.collect::<Result<_>>()?, is_cluster: true })
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    pub(crate) fn node(&self, at: usize) -> &Arc<Node> {
        &self.nodes[at]
    }

    /// Whether this is the address of one of them.
    pub(crate) fn has_base_url(&self, url: &str) -> bool {
        self.nodes.iter().any(|node| node.clients().http.base_url() == url)
    }

    /// Chooses a node that takes requests.
    pub(crate) fn visit(&self) -> Visit {
        let up: Vec<&Arc<Node>> =
            self.nodes.iter().filter(|node| *node.condition.borrow() == Condition::Up).collect();
        let node = up.get(fastrand::usize(..up.len().max(1))).copied().unwrap_or(&self.nodes[0]);
        Visit {
            node: node.clone(),
            clients: node.clients().clone(),
            condition: node.condition.subscribe(),
            downs: node.downs.load(Ordering::Acquire),
        }
    }
}

impl Node {
    fn new(address: &str, timeouts: Timeouts) -> Result<Node> {
        Ok(Node {
            address: address.to_owned(),
            clients: Mutex::new(Clients::new(address, timeouts)?),
            condition: watch::Sender::new(Condition::Up),
            downs: AtomicU64::new(0),
        })
    }

    /// A node that takes requests, be it for the first time or again.
    pub(crate) fn up(&self) -> Result<()> {
        *self.clients() = Clients::new(&self.address, CLUSTER_TIMEOUTS)?;
        self.condition.send_replace(Condition::Up);
        Ok(())
    }

    /// Sends no more requests to it; those that it has must be answered.
    pub(crate) fn leave(&self) {
        self.condition.send_replace(Condition::Leaving);
    }

    /// Takes it down: `take_down` kills or stops it. Requests whose answers are lost by that may be repeated.
    pub(crate) fn down(&self, take_down: impl FnOnce() -> Result<()>) -> Result<()> {
        self.leave();
        self.downs.fetch_add(1, Ordering::AcqRel);
        take_down()?;
        self.condition.send_replace(Condition::Down);
        Ok(())
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clients {
    fn new(address: &str, timeouts: Timeouts) -> Result<Clients> {
        let http = HttpClient::new(&format!("http://{address}"), "lessor-chaos", timeouts);
        Ok(Clients {
            http: http.context("cannot build an HTTP client")?,
            rpc: rpc::client(address, timeouts)?,
        })
    }
}

impl Visit {
    pub(crate) fn http(&self) -> &HttpClient {
        &self.clients.http
    }

    pub(crate) fn rpc(&self) -> rpc::Client {
        self.clients.rpc.clone()
    }

    pub(crate) fn address(&self) -> &str {
        &self.node.address
    }

    /// Whether the node was taken down since the request began.
    pub(crate) fn was_taken_down(&self) -> bool {
        self.node.downs.load(Ordering::Acquire) != self.downs
    }

    /// Waits for an answer as long as the node is there.
    pub(crate) async fn unless_down<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        let mut condition = self.condition.clone();
        tokio::select! {
            biased;
            answer = answer => Some(answer),
            _ = condition.wait_for(|now| *now == Condition::Down) => None,
        }
    }
}
