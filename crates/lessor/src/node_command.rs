//! `lessor node`: orders for one node of a cluster.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ledger::postgres::{Database, Membership, NodeRow, ShardRow};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::client::show::text::counted;
use crate::client::show::{Output, note};
use crate::config::{Config, LedgerBackend};
use crate::ledger_backend::DatabaseNode;

/// How often the command looks at the node that it waits for.
const LOOK: Duration = Duration::from_millis(100);
/// A node that was not seen for this long does not run.
const GONE: Duration = Duration::from_secs(6);
/// Longest wait for one answer of the database.
const MAX_ANSWER: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Let a node leave the cluster without a failed request: it hands the ledger over, serves what is open, and exits
    Drain(DrainOptions),
}

#[derive(clap::Args)]
#[command(after_help = "\
The node hands the ledger to another node, if it owns it, and forwards requests from then on. Its /readyz answers 503, so that \
load balancers leave it. Connections close after their next answer; waits and worker streams go on until they end, at most for \
cluster.drain_s. Then the process exits with 0. SIGTERM does the same.

The order goes through the database, so the command works on any machine that reaches it.

Examples:
  lessor node drain --config lessor.toml --wait
  lessor node drain node-2 --config lessor.toml

Exit codes: 0 the node leaves (with --wait: has left), 1 failed, 2 the file is not valid, 3 database refused.")]
struct DrainOptions {
    /// The node [default: the node of the configuration]
    #[arg(value_name = "NAME")]
    node: Option<String>,

    /// The configuration of a node, in TOML
    #[arg(long, value_name = "FILE", env = "LESSOR_CONFIG", default_value = "lessor.toml")]
    config: PathBuf,

    /// Return when the node has left, and show its progress
    #[arg(long)]
    wait: bool,

    /// Print JSON for scripts
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let Command::Drain(options) = &options.command;
    let config = Config::read(&options.config)?;
    ensure!(
        config.ledger.backend == LedgerBackend::Postgres,
        "{} has its ledger in a data directory, which is no cluster; stop its server with SIGTERM",
        options.config.display()
    );
    let name = options.node.clone().map_or_else(|| config.cluster.node(), Ok)?;
    let DatabaseNode { server, options: ledger, .. } = DatabaseNode::prepare(&config)?;
    let address = server.address();
    let database = Database::connect(server, ledger).map_err(ledger::Error::from)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let drain = Drain { membership: Membership::new(database), name, options };
    runtime.block_on(drain.run()).with_context(|| format!("cannot use {address}"))
}

struct Drain<'a> {
    membership: Membership,
    name: String,
    options: &'a DrainOptions,
}

/// What is seen of a node that leaves.
struct Progress {
    /// None when the node has left.
    node: Option<NodeRow>,
    /// The node that owns the ledger.
    owner: Option<String>,
}

impl Progress {
    fn is_owner(&self) -> bool {
        self.node.as_ref().is_some_and(|node| self.owner.as_ref() == Some(&node.node))
    }
}

impl Drain<'_> {
    async fn run(mut self) -> Result<()> {
        let (nodes, shards) = self.list().await?;
        let others =
            nodes.iter().filter(|node| node.node != self.name && !node.is_draining && is_alive(node));
        let others = others.count();
        match nodes.iter().find(|node| node.node == self.name) {
            Some(node) if is_alive(node) => {}
            Some(node) => {
                bail!("the node {} does not run: it was last seen {} s ago", self.name, node.seen_ms / 1_000)
            }
            None => bail!("there is no node {}; `lessor nodes` lists the nodes", self.name),
        }
        let was_owner = owner(&shards).is_some_and(|owner| owner == self.name);
        if was_owner && others == 0 {
            note(format_args!(
                "{} owns the ledger and no other node can take it: nobody serves once it has left",
                self.name
            ));
        }
        let ordered = timeout(MAX_ANSWER, self.membership.order_drain(&self.name)).await;
        let is_known = ordered.context("the database does not answer")?.map_err(ledger::Error::from)?;
        ensure!(is_known, "the node {} has left already", self.name);
        let began = Instant::now();
        let progress = if self.options.wait { self.follow().await? } else { self.progress().await? };
        if self.options.json {
            let shown = json!({
                "node": self.name,
                "state": if progress.node.is_some() { "draining" } else { "left" },
                "owner": progress.owner,
                "handedOver": was_owner && !progress.is_owner(),
                "connections": progress.node.map(|node| node.connections),
                "tookMs": began.elapsed().as_millis() as u64,
            });
            return Output::new().line(shown);
        }
        let owner = progress.owner.as_deref().unwrap_or("nobody");
        Output::new().line(match &progress.node {
            None => format!("{} has left; {owner} owns the ledger.", self.name),
            Some(_) => format!("{} leaves; `lessor nodes` shows when it is gone.", self.name),
        })
    }

    /// Shows what happens until the node has left.
    async fn follow(&mut self) -> Result<Progress> {
        let mut shown = String::new();
        loop {
            let progress = self.progress().await?;
            let Some(node) = &progress.node else { return Ok(progress) };
            if !is_alive(node) {
                bail!(
                    "the node {} has ended without leaving: it was not seen for {} s",
                    self.name,
                    GONE.as_secs()
                );
            }
            let connections = counted(node.connections as usize, "open connection");
            let text = match (&progress.owner, progress.is_owner()) {
                (_, true) => format!("{} hands the ledger over", self.name),
                (Some(owner), false) => {
                    format!("{owner} owns the ledger; {} serves {connections}", self.name)
                }
                (None, false) => format!("nobody owns the ledger; {} serves {connections}", self.name),
            };
            if text != shown {
                note(format_args!("{text}"));
                shown = text;
            }
            sleep(LOOK).await;
        }
    }

    async fn progress(&mut self) -> Result<Progress> {
        let (nodes, shards) = self.list().await?;
        let node = nodes.into_iter().find(|node| node.node == self.name && node.is_draining);
        Ok(Progress { node, owner: owner(&shards) })
    }

    async fn list(&mut self) -> Result<(Vec<NodeRow>, Vec<ShardRow>)> {
        let listed = timeout(MAX_ANSWER, self.membership.list()).await;
        Ok(listed.context("the database does not answer")?.map_err(ledger::Error::from)?)
    }
}

fn is_alive(node: &NodeRow) -> bool {
    u128::from(node.seen_ms) < GONE.as_millis()
}

fn owner(shards: &[ShardRow]) -> Option<String> {
    shards.first()?.owner.as_ref().map(|owner| owner.node.clone())
}
