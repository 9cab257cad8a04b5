//! `lessor cluster restored`: continues after the database was restored to an earlier point in time.
//!
//! The restore has undone records whose leases and tokens are still out there, and their positions will be used again. A new
//! key makes everything void that was signed before. A new epoch, recorded at the end of the ledger, makes a node that still
//! has the undone records refuse to go on.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ledger::postgres;
use serde_json::json;

use crate::client::show::{Output, note};
use crate::cluster_key::ClusterKey;
use crate::config::Config;
use crate::ledger_backend::describe;

#[derive(clap::Args)]
#[command(after_help = "\
Stop all nodes before the restore: a node that runs appends the undone records again. Then restore the database, run this \
once, copy the new key file to every node, and start the nodes.

The old key stays beside the new one, as FILE.old. Every lease, task token and page token that was given out before is \
refused; tasks that were leased run again when their leases expire. The headers and secrets of push targets must be \
configured anew.")]
pub(super) struct Options {
    /// Say that all nodes are stopped and the database was restored
    #[arg(long, required = true)]
    nodes_are_stopped: bool,
}

pub(super) fn run(_: &Options, config: &Config, json: bool) -> Result<()> {
    let (server, key_file) = (config.postgres.server()?, config.cluster.key_file()?);
    let old = ClusterKey::read(key_file)?;
    let stored = describe(&server)?.cluster;
    let new_file = beside(key_file, ".new");
    // An earlier run may have been cut off after it had written the new key.
    let new = match ClusterKey::find(&new_file)? {
        Some(key) => key,
        None => {
            let key = ClusterKey::generate()?;
            key.create(&new_file)?;
            key
        }
    };
    if stored.key_print != new.print() {
        postgres::replace_key(&server, old.print(), new.print())
            .with_context(|| format!("cannot replace the key of the cluster in {}", server.address()))?;
    }
    let epochs =
        (0..stored.shards).map(|shard| record_epoch(config, shard, &new)).collect::<Result<Vec<_>>>()?;
    let old_file = beside(key_file, ".old");
    let replaced = fs::copy(key_file, &old_file).and_then(|_| fs::rename(&new_file, key_file));
    replaced.with_context(|| format!("cannot replace {} by {}", key_file.display(), new_file.display()))?;
    if json {
        let shown = json!({
            "cluster": stored.id.to_string(), "keyFile": key_file, "oldKeyFile": old_file, "epochs": epochs,
        });
        return Output::new().line(shown);
    }
    let epochs: Vec<String> = epochs.iter().map(u64::to_string).collect();
    Output::new().line(format_args!(
        "The cluster {} continues with epoch {}.",
        stored.id,
        epochs.join(", ")
    ))?;
    note(format_args!(
        "Its new key is in {}. Copy it to every node. Leases and tokens from before are refused; configure the secrets of \
         push targets anew. The old key is in {}, for the audit trail.",
        key_file.display(),
        old_file.display()
    ));
    Ok(())
}

/// Takes the shard over, and ends: the takeover is the record of the new epoch.
fn record_epoch(config: &Config, shard: u32, key: &ClusterKey) -> Result<u64> {
    let options = postgres::Options { shard, ..postgres::Options::new(&config.cluster.node()?, key.print()) };
    let storage = postgres::open(config.postgres.server()?, options)?;
    let options = coordinator::Options {
        node: config.cluster.node()?,
        queue_defaults: server::reapi::queue_defaults(),
        ..coordinator::Options::default()
    };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let entered = runtime.enter();
    let running = coordinator::start(storage, options)?;
    drop(entered);
    let epoch = running.report.epoch;
    runtime.block_on(running.stop())?;
    ensure!(epoch > 0, "the ledger has no epoch");
    Ok(epoch)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
