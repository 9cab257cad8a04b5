//! `lessor cluster init`: creates the key file and the tables of a new cluster.

use anyhow::{Context, Result};
use ledger::postgres;
use serde_json::json;

use crate::client::show::{Output, note};
use crate::cluster_key::ClusterKey;
use crate::config::Config;
use crate::ledger_backend::new_cluster_id;

#[derive(clap::Args)]
#[command(after_help = "\
The database must exist and its user must be allowed to create a schema in it; nothing outside of the schema `lessor` is \
touched. A database that holds a cluster is refused. To take an existing ledger along, use `lessor migrate` instead.

Copy the key file to every node. Who has it can make leases and tokens that are accepted, and who loses it must configure \
push secrets anew.

Example:
  createdb lessor
  lessor cluster init --config lessor.toml")]
pub(super) struct Options {
    /// How many parts the queues are spread over; it cannot be changed later, and one is served for now
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    shards: u32,
}

pub(super) fn run(options: &Options, config: &Config, json: bool) -> Result<()> {
    let (server, key_file) = (config.postgres.server()?, config.cluster.key_file()?);
    let found = ClusterKey::find(key_file)?;
    let key = found.clone().map_or_else(ClusterKey::generate, Ok)?;
    let id = new_cluster_id()?;
    // The key first: a database whose key is lost would be of no use.
    if found.is_none() {
        key.create(key_file)?;
    }
    let cluster = postgres::Cluster { id, shards: options.shards, key_print: key.print() };
    let created = postgres::initialize(&server, cluster);
    if created.is_err() && found.is_none() {
        // What it holds is no key of any cluster.
        let _ = std::fs::remove_file(key_file);
    }
    created.with_context(|| format!("cannot create a cluster in {}", server.address()))?;
    if json {
        let shown = json!({
            "cluster": id.to_string(),
            "shards": options.shards,
            "keyFile": key_file,
            "keyCreated": found.is_none(),
        });
        return Output::new().line(shown);
    }
    Output::new().line(format_args!("The cluster {id} is in {}.", server.address()))?;
    if found.is_none() {
        note(format_args!(
            "Its key is in {}. Copy it to every node, and keep it secret.",
            key_file.display()
        ));
    }
    Ok(())
}
