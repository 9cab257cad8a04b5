//! `lessor worker`: runs actions for a coordinator.

mod daemon;
mod embedded;
mod instances;
mod metrics;

pub use embedded::Embedded;
pub use instances::Instances;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lease actions from a coordinator and run them, until it is told to stop
    Daemon(daemon::Options),
}

pub fn run(options: Options) -> Result<ExitCode> {
    match options.command {
        Command::Daemon(options) => daemon::run(options).map(|()| ExitCode::SUCCESS),
    }
}

/// What this machine offers when nothing else is said.
fn platform() -> std::collections::BTreeMap<String, String> {
    let os = if cfg!(target_os = "linux") { "linux" } else { std::env::consts::OS };
    let pairs = [("OSFamily", os), ("ISA", std::env::consts::ARCH)];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn slots() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
