//! `lessor serve`: the server as a service, told everything by a file.

use std::path::PathBuf;

use anyhow::Result;

use crate::config::Config;
use crate::{logging, serving};

#[derive(clap::Args)]
#[command(after_help = "`lessor check-config FILE` says what is in effect without starting anything.\n\n\
    Exit codes: 0 stopped, 1 could not start, 2 the file is not right, 3 data directory refused, 4 the ledger \
    failed while running.")]
pub struct Options {
    /// The configuration, in TOML
    #[arg(long, value_name = "FILE", env = "LESSOR_CONFIG")]
    pub config: PathBuf,

    /// Let a missing or empty data directory become a new one; without it, that is refused, because a volume that was
    /// not mounted looks the same
    #[arg(long)]
    pub init: bool,

    /// Log in detail; LESSOR_LOG says it more finely
    #[arg(long)]
    pub verbose: bool,

    /// Drop a last batch that was written whole but does not verify. It may have been acknowledged: use this only after
    /// reading what the refusal says is at risk
    #[arg(long)]
    pub drop_unverified_tail: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let config = Config::read(&options.config)?;
    let _log = logging::start(if options.verbose { "debug" } else { "info" });
    config.warnings().for_each(|warning| tracing::warn!("{warning}"));
    serving::run(config.settings(options.init, options.drop_unverified_tail))
}
