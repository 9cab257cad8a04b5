//! `lessor cluster finalize`: enables the newest record format.

use anyhow::{Context, Result, bail};
use ledger::postgres::{self, Finalized};
use serde_json::json;

use crate::client::show::Output;
use crate::cluster_key::ClusterKey;
use crate::config::Config;

#[derive(clap::Args)]
#[command(after_help = "\
Run it after an upgrade, when every node runs the new version. Until then nodes write the format that all of them read, so \
that an upgrade can be undone. Afterwards older versions are refused.")]
pub(super) struct Options {}

pub(super) fn run(config: &Config, json: bool) -> Result<()> {
    let (server, key) = (config.postgres.server()?, ClusterKey::read(config.cluster.key_file()?)?);
    let finalized = postgres::finalize(&server, key.print())
        .with_context(|| format!("cannot finalize the cluster in {}", server.address()))?;
    let (format, enabled, text) = match finalized {
        Finalized::Already { format } => (
            format,
            false,
            format!("Nothing is to be done: record format {format} is the newest, and is enabled."),
        ),
        Finalized::Enabled { format } => (format, true, format!("Record format {format} is enabled.")),
        Finalized::Refused { format, nodes } => {
            let nodes: Vec<String> =
                nodes.iter().map(|node| format!("{} (version {})", node.name, node.version)).collect();
            bail!("record format {format} was not enabled: upgrade these nodes first: {}", nodes.join(", "))
        }
    };
    if json {
        return Output::new().line(json!({"format": format, "enabled": enabled}));
    }
    Output::new().line(text)
}
