//! `lessor cluster`: creates the database of a cluster, and maintains it.

mod finalize;
mod init;
mod restored;

use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::config::{Config, LedgerBackend};

#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
The file has the address of the database and the cluster key:
  [ledger]
  backend = \"postgres\"
  [postgres]
  url = \"postgres://lessor@db.example.com/lessor\"
  [cluster]
  key_file = \"/etc/lessor/cluster.key\"

Examples:
  lessor cluster init --config lessor.toml
  lessor check-config lessor.toml
  lessor serve --config lessor.toml

Exit codes: 0 done, 1 failed, 2 the file is not valid, 3 database refused; nothing was changed."
)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,

    /// The configuration of a node, in TOML
    #[arg(long, value_name = "FILE", env = "LESSOR_CONFIG", global = true, default_value = "lessor.toml")]
    config: PathBuf,

    /// Print JSON for scripts
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create the cluster: its key file, if it is missing, and its tables in an empty database
    Init(init::Options),
    /// Continue after the database was restored to an earlier point in time: with a new key and a new epoch
    Restored(restored::Options),
    /// Let nodes write the newest record format, once all nodes read it
    Finalize(finalize::Options),
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let config = Config::read(&options.config)?;
    ensure!(
        config.ledger.backend == LedgerBackend::Postgres,
        "{} has its ledger in a data directory, which is no cluster; set ledger.backend = \"postgres\"",
        options.config.display()
    );
    match &options.command {
        Command::Init(init) => init::run(init, &config, options.json),
        Command::Restored(restored) => restored::run(restored, &config, options.json),
        Command::Finalize(_) => finalize::run(&config, options.json),
    }
}
