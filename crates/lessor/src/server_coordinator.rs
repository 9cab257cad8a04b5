//! The coordinator that a server asks: its own, or that of the cluster which this server is a node of.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use coordinator::{Handle, Options, Running, StartReport};
use ledger::{ClusterId, file};

use crate::config::Config;
use crate::ledger_backend::{self, DatabaseNode};
use crate::node::{Departure, Joining, Node};

/// Longest wait for the projections at a start.
const MAX_CATCH_UP: Duration = Duration::from_secs(10);

pub(crate) enum Coordinator {
    Own(Box<Running>),
    Node(Box<Node>),
}

impl Coordinator {
    /// Starts a coordinator on the ledger in a data directory.
    pub(crate) async fn start_own(
        data: PathBuf,
        ledger: file::Options,
        options: impl FnOnce(ClusterId) -> Options + Send + 'static,
    ) -> Result<(Coordinator, Vec<String>)> {
        let place = format!("cannot open the data directory {}", data.display());
        let started = tokio::task::spawn_blocking(move || -> Result<_> {
            let (storage, id, notices) = ledger_backend::open(&data, ledger)?;
            Ok((coordinator::start(storage, options(id))?, notices))
        });
        let (mut running, notices) = started.await?.context(place)?;
        // An action whose result was recorded last must not run again because the action cache does not have it yet.
        running.projections_caught_up(MAX_CATCH_UP).await;
        Ok((Coordinator::Own(Box::new(running)), notices))
    }

    /// Joins the cluster whose ledger is in a database.
    pub(crate) async fn join(
        node: DatabaseNode,
        config: &Config,
        joining: Joining,
        options: impl Fn(ClusterId) -> Options + Send + 'static,
    ) -> Result<(Coordinator, Vec<String>)> {
        let id = node.cluster;
        let notice = format!("The ledger is in {} (node {})", node.server.address(), node.options.node);
        let place = format!("cannot use the ledger in {}", node.server.address());
        let node = Node::start(node, config, joining, move || options(id)).await.context(place)?;
        let blobs = match &config.storage.url {
            Some(url) => format!("Blobs and results are on the content server {url}"),
            None => "Blobs are stored on this node only: name a content server for all nodes in storage.url, or send \
                     builds that share them to one node"
                .to_owned(),
        };
        Ok((Coordinator::Node(Box::new(node)), vec![notice, blobs]))
    }

    pub(crate) fn handle(&self) -> &Handle {
        match self {
            Coordinator::Own(running) => &running.handle,
            Coordinator::Node(node) => node.handle(),
        }
    }

    /// What was found at the start. A node asks the owner.
    pub(crate) async fn report(&mut self) -> Result<StartReport> {
        match self {
            Coordinator::Own(running) => Ok(running.report.clone()),
            Coordinator::Node(node) => node.report().await,
        }
    }

    /// Takes the name of the node from the process that this one replaces.
    pub(crate) async fn take_name(&mut self) {
        if let Coordinator::Node(node) = self {
            node.take_name().await;
        }
    }

    /// The departure from the cluster, when the server is about to stop.
    pub(crate) fn departure(&self) -> Departure {
        match self {
            Coordinator::Own(_) => Departure::default(),
            Coordinator::Node(node) => node.departure(),
        }
    }

    /// Waits until the coordinator ends by itself.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        match self {
            Coordinator::Own(running) => running.failed().await.into(),
            Coordinator::Node(node) => node.failed().await,
        }
    }

    /// Stops: what was decided becomes durable and is answered.
    pub(crate) async fn stop(self) -> Result<()> {
        match self {
            Coordinator::Own(running) => Ok(running.stop().await?),
            Coordinator::Node(node) => node.stop().await,
        }
    }
}
