//! A node of a cluster: the supervisor of its role, and its listener for other nodes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use cluster::{Phase, Supervisor};
use coordinator::{Handle, NodeAddress, Options, Peer, Router, RouterOptions, StartReport};
use ledger::postgres::{Database, Inbox};
use relay::{ClusterTls, RemotePeer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::config::Config;
use crate::ledger_backend::DatabaseNode;

/// A node that runs.
pub(crate) struct Node {
    handle: Handle,
    phase: watch::Sender<Phase>,
    supervisor: JoinHandle<Result<(), cluster::Error>>,
    /// The listener for other nodes and the inbox of enqueued tasks end with the node.
    _tasks: JoinSet<()>,
}

impl Node {
    /// Joins the cluster. `options` are those of the coordinator that this node starts whenever it takes over.
    pub(crate) async fn start(
        node: DatabaseNode,
        config: &Config,
        options: impl FnMut() -> Options + Send + 'static,
    ) -> Result<Node> {
        let DatabaseNode { server, options: ledger_options, key, .. } = node;
        let listen = config.cluster.listen(config.server.address);
        let listener = TcpListener::bind(listen).await.with_context(|| {
            format!("cannot listen for other nodes on {listen}; choose another address (cluster.listen)")
        })?;
        let listening_on = listener.local_addr().context("the socket for other nodes has no address")?;
        let address = match &config.cluster.address {
            Some(address) => address.clone(),
            None if listening_on.ip().is_unspecified() => anyhow::bail!(
                "other nodes cannot reach {listening_on}; name the address of this node in cluster.address"
            ),
            None => listening_on.to_string(),
        };
        let name = ledger_options.node.clone();
        let tls = ClusterTls::from_cluster_key(&key.lease_key())?;
        let (router, handle) = Router::new(RouterOptions::default());
        let mut tasks = JoinSet::new();
        let inbound = router.inbound();
        tasks.spawn(relay::serve(listener, tls.clone(), name.clone(), inbound, std::future::pending()));
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
        };
        // Tasks that users enqueue in their own transactions.
        tasks.spawn(server::inbox::run(Inbox::new(database.clone()), handle.clone()));
        let supervisor = Supervisor::new(node, database, router, phases, options, connect);
        Ok(Node { handle, phase, supervisor: tokio::spawn(supervisor.run()), _tasks: tasks })
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
                Err(why) => tracing::warn!(%why, "waiting for a node that owns the ledger"),
            }
        };
        let (replay_took, took) = (Duration::ZERO, Duration::ZERO);
        Ok(StartReport { snapshot: None, replayed: 0, replay_took, took, tasks, epoch: 0 })
    }

    pub(crate) fn handover(&self) -> Handover {
        Handover(Some(self.phase.clone()))
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

/// Begins the handover of a node that is about to stop.
#[derive(Default)]
pub(crate) struct Handover(Option<watch::Sender<Phase>>);

impl Handover {
    /// Hands the ledger over, if this node owns it and another one can take it. Requests are forwarded from then on.
    pub(crate) fn drain(&self) {
        if let Some(phase) = &self.0 {
            phase.send_replace(Phase::Drain);
        }
    }
}
