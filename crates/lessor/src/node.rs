//! A node of a cluster: the supervisor of its role, and its listener for other nodes.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use cluster::{Name, Phase, Standing, Supervisor};
use coordinator::{Handle, NodeAddress, Options, Peer, Router, RouterOptions, StartReport};
use ledger::postgres::{Database, Feed, Inbox};
use relay::{ClusterTls, ConnectedNodes, RemotePeer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::config::Config;
use crate::ledger_backend::DatabaseNode;

/// The file in the data directory with the positions at which the database has another history than this node.
pub(crate) const FORK_FILE: &str = "ledger-forked.json";
/// The pause before a cluster without an owner is asked again.
const REPORT_PAUSE: Duration = Duration::from_millis(200);

/// A node that runs.
pub(crate) struct Node {
    handle: Handle,
    phase: watch::Sender<Phase>,
    standing: watch::Receiver<Standing>,
    supervisor: JoinHandle<Result<(), cluster::Error>>,
    /// The listener for other nodes and the inbox of enqueued tasks end with the node.
    _tasks: JoinSet<()>,
}

/// How a process becomes a node.
pub(crate) struct Joining {
    /// Whether it replaces another process with the same name.
    pub replaces: bool,
    /// Counts the open connections of clients.
    pub connections: Box<dyn Fn() -> u64 + Send>,
}

impl Node {
    /// Joins the cluster. `options` are those of the coordinator that this node starts whenever it takes over.
    pub(crate) async fn start(
        node: DatabaseNode,
        config: &Config,
        joining: Joining,
        options: impl FnMut() -> Options + Send + 'static,
    ) -> Result<Node> {
        let DatabaseNode { server, options: ledger_options, key, .. } = node;
        let (listener, address) = listen(config, joining.replaces).await?;
        let name = ledger_options.node.clone();
        let tls = ClusterTls::from_cluster_key(&key.lease_key())?;
        let (router, handle) = Router::new(RouterOptions::default());
        let mut tasks = JoinSet::new();
        let (inbound, feed) = (router.inbound(), Feed::new(config.cluster.feed_options()));
        let connected = ConnectedNodes::default();
        let serving = relay::serve(
            listener,
            tls.clone(),
            name.clone(),
            inbound,
            feed.clone(),
            connected.clone(),
            std::future::pending(),
        );
        tasks.spawn(serving);
        let connect = {
            let name = name.clone();
            move |owner: &NodeAddress| -> Arc<dyn Peer> {
                Arc::new(RemotePeer::connect(&*owner.address, name.clone(), tls.clone()))
            }
        };
        let database = tokio::task::spawn_blocking(move || Database::connect(server, ledger_options));
        let database = database.await?.map_err(ledger::Error::from)?;
        let (phase, phases) = watch::channel(Phase::Serve);
        let node = cluster::Node {
            name,
            address,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            takeover_after: Duration::from_millis(config.cluster.takeover_after_ms),
            replaces: joining.replaces,
        };
        // Tasks that users enqueue in their own transactions.
        tasks.spawn(server::inbox::run(Inbox::new(database.clone()), handle.clone()));
        let supervisor = Supervisor::new(node, database, router, phases, options, connect)
            .with_feed(feed)
            .with_hearing(move |node| connected.hears(node))
            .with_fork_file(config.data.dir.join(FORK_FILE))
            .with_connections(joining.connections);
        let standing = supervisor.standing();
        Ok(Node { handle, phase, standing, supervisor: tokio::spawn(supervisor.run()), _tasks: tasks })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// What the owner has, as far as a node asks for it.
    ///
    /// Waits until some node owns the ledger: this one may have a long history to read.
    pub(crate) async fn report(&mut self) -> Result<StartReport> {
        let tasks = loop {
            match self.handle.status().await {
                Ok(status) => break status.tasks,
                Err(_) if self.supervisor.is_finished() => return Err(self.failed().await),
                Err(why) => {
                    tracing::warn!(%why, "waiting for a node that owns the ledger");
                    tokio::time::sleep(REPORT_PAUSE).await;
                }
            }
        };
        let (replay_took, took) = (Duration::ZERO, Duration::ZERO);
        Ok(StartReport { snapshot: None, replayed: 0, replay_took, took, tasks, epoch: 0 })
    }

    /// Takes the name of the node from the process that this one replaces, and waits until it has it.
    pub(crate) async fn take_name(&mut self) {
        self.phase.send_replace(Phase::Replace);
        let _ = self.standing.wait_for(|standing| standing.name != Name::Wanted).await;
    }

    pub(crate) fn departure(&self) -> Departure {
        Departure(Some((self.phase.clone(), self.standing.clone())))
    }

    /// Waits until the node must end by itself.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        match (&mut self.supervisor).await {
            Ok(Ok(())) => anyhow::anyhow!("the node has left its cluster"),
            Ok(Err(error)) => error.into(),
            Err(error) => anyhow::anyhow!("the supervisor of the node ended: {error}"),
        }
    }

    /// Leaves the cluster. What was decided here becomes durable first.
    pub(crate) async fn stop(self) -> Result<()> {
        self.phase.send_replace(Phase::End);
        Ok(self.supervisor.await??)
    }
}

/// Listens for other nodes. Returns the address by which they reach this one as well. A process that replaces another one
/// takes the next port while the other one has the first.
async fn listen(config: &Config, replaces: bool) -> Result<(TcpListener, String)> {
    let first = config.cluster.listen(config.server.address);
    let next = first.port().checked_add(1).filter(|_| replaces && first.port() > 0);
    let bound = match (TcpListener::bind(first).await, next) {
        (Err(error), Some(port)) if error.kind() == ErrorKind::AddrInUse => {
            TcpListener::bind(SocketAddr::new(first.ip(), port)).await
        }
        (bound, _) => bound,
    };
    let listener = bound.with_context(|| {
        format!("cannot listen for other nodes on {first}; choose another address (cluster.listen)")
    })?;
    let on = listener.local_addr().context("the socket for other nodes has no address")?;
    let address = match &config.cluster.address {
        Some(address) if on.port() == first.port() || first.port() == 0 => address.clone(),
        Some(address) => {
            let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
            format!("{host}:{}", on.port())
        }
        None if on.ip().is_unspecified() => {
            anyhow::bail!("other nodes cannot reach {on}; name the address of this node in cluster.address")
        }
        None => on.to_string(),
    };
    Ok((listener, address))
}

/// The departure of a node that is about to stop. A server without a cluster has none.
#[derive(Default)]
pub(crate) struct Departure(Option<(watch::Sender<Phase>, watch::Receiver<Standing>)>);

/// Why a node has to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhyLeave {
    Ordered,
    /// Another process has the name of the node.
    NameLost,
}

impl Departure {
    /// Resolves once the node has to leave: an operator wants it to, or another process has its name.
    pub(crate) async fn wanted(&self) -> WhyLeave {
        let Some((_, standing)) = &self.0 else { return std::future::pending().await };
        let mut standing = standing.clone();
        let is_wanted = |standing: &Standing| standing.is_ordered_to_drain || standing.name == Name::Lost;
        match standing.wait_for(is_wanted).await.map(|standing| standing.name) {
            Ok(Name::Lost) => WhyLeave::NameLost,
            Ok(_) => WhyLeave::Ordered,
            // The supervisor has ended, which ends the server too.
            Err(_) => std::future::pending().await,
        }
    }

    /// Hands the ledger over, if this node owns it and another one can take it. Requests are forwarded from then on.
    pub(crate) fn begin(&self) {
        if let Some((phase, _)) = &self.0 {
            phase.send_replace(Phase::Drain);
        }
    }
}
