//! `cargo xtask chaos`: the long form of the chaos tests, against a release build.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

use crate::steps::{cargo, run as run_command, step};
use crate::tools;

#[derive(clap::Args)]
pub struct Args {
    /// Run this scenario only; all of them when left out.
    #[arg(long)]
    scenario: Option<Scenario>,
    /// The seed of the random choices; each run prints its own.
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Scenario {
    /// SIGKILL, 100 times, at random moments and while it starts.
    Kill,
    /// SIGSTOP for longer than a lease, 30 times.
    Stop,
    /// The wall clock an hour forth and back between starts.
    Clock,
    /// A disk that is full, and has space again.
    FullDisk,
    /// Workers of all contracts on one queue, under 80 kills and 20 stops.
    Contracts,
}

impl Scenario {
    /// How the name of its test begins in crates/lessor/tests/chaos.rs.
    fn test_prefix(self) -> &'static str {
        match self {
            Self::Kill => "kill_",
            Self::Stop => "stop_",
            Self::Clock => "clock_",
            Self::FullDisk => "full_disk_",
            Self::Contracts => "contracts_",
        }
    }
}

pub fn run(root: &Path, args: &Args) -> Result<()> {
    step("tools", tools::ensure_test_tools)?;
    step("chaos", || {
        let mut command = cargo(root);
        command.args(["test", "--release", "--package", "lessor", "--test", "chaos", "--"]);
        command.args(["--nocapture", "--test-threads=1"]);
        command.args(args.scenario.map(Scenario::test_prefix));
        command.env("LESSOR_CHAOS_FORM", "long");
        command.envs(args.seed.map(|seed| ("LESSOR_CHAOS_SEED", seed.to_string())));
        run_command(&mut command)
    })
}
