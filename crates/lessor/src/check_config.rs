//! `lessor check-config`: validates a configuration file, prints the settings in effect and checks the database.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde::Serialize;
use serde_json::json;

use crate::client::show::Record;
use crate::cluster_key::ClusterKey;
use crate::config::{Config, LedgerBackend, file};
use crate::ledger_backend::describe;
use crate::worker::WorkerFile;

#[derive(clap::Args)]
#[command(
    after_help = "If the ledger is in PostgreSQL, the database is checked too: its settings, the cluster, its key and its nodes.\n\n\
    Exit codes: 0 the file is valid, 1 the file cannot be read or the database cannot be used, 2 the file is not valid, \
    3 database refused."
)]
pub(crate) struct Options {
    /// The configuration of a server or of a worker, in TOML
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Print the settings in effect as JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let text = file::text(&options.file)?;
    // A file with a table `worker` is a worker's file. A file that is not TOML is refused as a server's.
    let is_workers = text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("worker"));
    if is_workers {
        return print(options, &file::read::<WorkerFile>(&options.file)?);
    }
    let config = Config::read(&options.file)?;
    if config.ledger.backend == LedgerBackend::Postgres {
        return check_database(options, &config);
    }
    print(options, &config)?;
    if !options.json {
        config.warnings().for_each(|warning| anstream::eprintln!("\nNote: {warning}"));
    }
    Ok(())
}

/// Connects to the database as a node does, and says what it holds.
fn check_database(options: &Options, config: &Config) -> Result<()> {
    if !options.json {
        print(options, config)?;
        config.warnings().for_each(|warning| anstream::eprintln!("\nNote: {warning}"));
    }
    let (server, key_file) = (config.postgres.server()?, config.cluster.key_file()?);
    let found = describe(&server)?;
    let key = ClusterKey::read(key_file)?;
    ensure!(
        key.print() == found.cluster.key_print,
        "{} is not the key of the cluster in {}; copy the key file of another node",
        key_file.display(),
        server.address()
    );
    if options.json {
        let mut json = serde_json::to_value(config)?;
        json["database"] = json!({
            "serverVersion": found.server_version,
            "cluster": found.cluster.id.to_string(),
            "shards": found.cluster.shards,
            "format": found.format,
            "synchronousStandbyNames": found.synchronous_standby_names,
            "nodes": found.nodes.iter().map(|node| json!({
                "node": node.name, "address": node.address, "version": node.version, "format": node.format,
            })).collect::<Vec<_>>(),
        });
        anstream::println!("{json}");
        return Ok(());
    }
    let mut record = Record::new("database", &server.address());
    record.field("PostgreSQL", &found.server_version);
    record.field("cluster", found.cluster.id.to_string());
    record.field("shards", found.cluster.shards.to_string());
    record.field("format", found.format.to_string());
    record.field(
        "replicas",
        match found.synchronous_standby_names.as_str() {
            "" => "commits wait for none: a failover may lose the last ones",
            names => names,
        },
    );
    for node in &found.nodes {
        record.field("node", format!("{} at {}, version {}", node.name, node.address, node.version));
    }
    anstream::print!("\n{record}");
    Ok(())
}

fn print(options: &Options, config: &impl Serialize) -> Result<()> {
    if options.json {
        anstream::println!("{}", serde_json::to_string(config)?);
        return Ok(());
    }
    anstream::println!("{} is valid. In effect, with the defaults:\n", options.file.display());
    anstream::print!("{}", toml::to_string(config)?);
    Ok(())
}
