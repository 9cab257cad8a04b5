//! `lessor nodes`: the nodes of a cluster, who owns the ledger, and since when and why.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use ledger::postgres::{Database, Membership, NodeRow, ShardRow};
use serde_json::{Value, json};

use crate::client::show::{Cell, Output, Table};
use crate::config::{Config, LedgerBackend};
use crate::ledger_backend::DatabaseNode;

/// A node that was not seen for so long is not waited for when another node takes over.
const SILENT_AFTER_MS: u64 = cluster::ALIVE.as_millis() as u64;

#[derive(clap::Args)]
#[command(after_help = "\
Asks the database, so it works on any machine that reaches it, also when no node runs. A node that is silent was not seen for \
6 seconds: it is gone, stands still, or is cut off from the database. A node that is draining leaves the cluster. LAG is the \
number of records that a standby had not applied when it was SEEN. FED says whether the owner sends its batches to a standby; \
the others read them from the database. TAKEN OVER FROM names the owner before, and why it was replaced.

Example:
  lessor nodes --config lessor.toml")]
pub(crate) struct Options {
    /// The configuration of a node, in TOML
    #[arg(long, value_name = "FILE", env = "LESSOR_CONFIG", default_value = "lessor.toml")]
    config: PathBuf,

    /// Print JSON for scripts
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let config = Config::read(&options.config)?;
    ensure!(
        config.ledger.backend == LedgerBackend::Postgres,
        "{} has its ledger in a data directory, which is no cluster; set ledger.backend = \"postgres\"",
        options.config.display()
    );
    let DatabaseNode { server, options: ledger, .. } = DatabaseNode::prepare(&config)?;
    let address = server.address();
    let database = Database::connect(server, ledger).map_err(ledger::Error::from)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (nodes, shards) = runtime
        .block_on(Membership::new(database).list())
        .map_err(ledger::Error::from)
        .with_context(|| format!("cannot read {address}"))?;
    if options.json {
        let shown = json!({
            "nodes": nodes.iter().map(|node| node_json(node, &shards)).collect::<Vec<_>>(),
            "shards": shards.iter().map(shard_json).collect::<Vec<_>>(),
        });
        return Output::new().line(shown);
    }
    let mut output = Output::new();
    output.line(shard_table(&shards))?;
    output.print(node_table(&nodes, &shards))
}

fn shard_table(shards: &[ShardRow]) -> Table {
    let mut table = Table::new(&["SHARD", "OWNER", "EPOCH", "SINCE", "RECORDS", "TAKEN OVER FROM"]);
    for shard in shards {
        let owner = shard.owner.as_ref();
        table.row([
            Cell::text(shard.shard.to_string()),
            Cell::text(owner.map_or("-", |owner| &owner.node)),
            Cell::text(owner.map_or_else(String::new, |owner| owner.epoch.to_string())),
            Cell::text(owner.map_or_else(String::new, |_| ago(shard.owner_for_ms))),
            Cell::text((shard.next.0 - 1).to_string()),
            Cell::text(&shard.reason),
        ]);
    }
    table
}

fn node_table(nodes: &[NodeRow], shards: &[ShardRow]) -> Table {
    let mut table = Table::new(&["NODE", "ROLE", "ADDRESS", "VERSION", "SEEN", "LAG", "FED", "CONNECTIONS"]);
    for node in nodes {
        table.row([
            Cell::text(&node.node),
            Cell::text(role(node, shards)),
            Cell::text(&node.address),
            Cell::text(&node.version),
            Cell::text(ago(node.seen_ms)),
            Cell::text(lag(node, shards).map_or_else(String::new, |lag| lag.to_string())),
            Cell::text(is_fed(node, shards).map_or("", |is_fed| if is_fed { "yes" } else { "no" })),
            Cell::text(node.connections.to_string()),
        ]);
    }
    table
}

fn role(node: &NodeRow, shards: &[ShardRow]) -> &'static str {
    match (owns(node, shards), is_silent(node), node.is_draining) {
        (true, true, _) => "owner, silent",
        (true, false, true) => "owner, draining",
        (true, false, false) => "owner",
        (false, true, _) => "silent",
        (false, false, true) => "draining",
        (false, false, false) => "standby",
    }
}

/// Whether it is gone, as far as the database knows: a node that lives is seen every two seconds.
fn is_silent(node: &NodeRow) -> bool {
    node.seen_ms >= SILENT_AFTER_MS
}

fn owns(node: &NodeRow, shards: &[ShardRow]) -> bool {
    shards.iter().any(|shard| shard.owner.as_ref().is_some_and(|owner| owner.node == node.node))
}

/// How many records a standby had not applied when it was seen.
fn lag(node: &NodeRow, shards: &[ShardRow]) -> Option<u64> {
    let shard = shards.first().filter(|_| !owns(node, shards))?;
    Some(shard.next.0.saturating_sub(node.applied_next.0))
}

/// Whether the owner sends its batches to a standby.
fn is_fed(node: &NodeRow, shards: &[ShardRow]) -> Option<bool> {
    (!owns(node, shards)).then_some(node.is_fed && !is_silent(node))
}

fn ago(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{:.1} s ago", ms as f64 / 1_000.0),
        10_000..600_000 => format!("{} s ago", ms / 1_000),
        _ => format!("{} min ago", ms / 60_000),
    }
}

fn node_json(node: &NodeRow, shards: &[ShardRow]) -> Value {
    json!({
        "node": node.node,
        "role": if owns(node, shards) { "owner" } else { "standby" },
        "address": node.address,
        "version": node.version,
        "seenMsAgo": node.seen_ms,
        "silent": is_silent(node),
        "lag": lag(node, shards),
        "fed": is_fed(node, shards),
        "draining": node.is_draining,
        "connections": node.connections,
    })
}

fn shard_json(shard: &ShardRow) -> Value {
    json!({
        "shard": shard.shard,
        "owner": shard.owner.as_ref().map(|owner| &owner.node),
        "epoch": shard.owner.as_ref().map(|owner| owner.epoch),
        "ownerForMs": shard.owner.as_ref().map(|_| shard.owner_for_ms),
        "records": shard.next.0 - 1,
        "lastTakeover": shard.reason,
    })
}
