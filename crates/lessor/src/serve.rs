//! `lessor serve`: runs the server as a service, configured by a file.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use tracing::level_filters::LevelFilter;

use crate::config::{Config, LedgerBackend};
use crate::logging;
use crate::serving::{self, Start};

#[derive(clap::Args)]
#[command(
    after_help = "`lessor check-config FILE` prints the settings in effect without starting anything.\n\n\
    Exit codes: 0 stopped, 1 could not start, 2 the file is not valid, 3 data directory refused, 4 the ledger \
    failed while running."
)]
pub(crate) struct Options {
    /// The configuration, in TOML
    #[arg(long, value_name = "FILE", env = "LESSOR_CONFIG")]
    pub config: PathBuf,

    /// Initialize a missing or empty data directory. Without this flag, such a directory is refused, because a volume that
    /// is not mounted looks the same
    #[arg(long)]
    pub init: bool,

    /// Log in detail; LESSOR_LOG sets the level of each module
    #[arg(long)]
    pub verbose: bool,

    /// Drop a last batch that is complete but does not verify. The batch may have been acknowledged: first read what the
    /// refusal says is at risk
    #[arg(long)]
    pub drop_unverified_tail: bool,

    /// Replace the process that runs with the same data directory, as a node of a cluster: take its port, its name and its
    /// ledger without losing a connection. Without such a process, start as usual
    #[arg(long)]
    pub replace: bool,

    /// Serve an address that others can reach without authentication: everyone who can reach it can run commands
    #[arg(long)]
    pub insecure: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let config = Config::read(&options.config)?;
    ensure!(
        !options.replace || config.ledger.backend == LedgerBackend::Postgres,
        "--replace needs a ledger that two processes can share, and {} has it in a data directory; stop the other process \
         first, or set ledger.backend = \"postgres\"",
        options.config.display()
    );
    let _log = logging::start(if options.verbose { LevelFilter::DEBUG } else { LevelFilter::INFO });
    let start = Start {
        may_create: options.init,
        drop_unverified_tail: options.drop_unverified_tail,
        queues: vec![config.exec_queue()],
        worker: None,
        insecure: options.insecure,
        replaces: options.replace,
    };
    serving::run(config, start)
}
