//! `cargo xtask chaos`: runs the long form of the chaos tests, against a release build.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;

use crate::steps::{cargo, run as run_command, step};
use crate::tools;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only this scenario. Default: all scenarios.
    #[arg(long)]
    scenario: Option<Scenario>,
    /// Run only the cluster: three nodes, PostgreSQL with a synchronous replica, SIGKILL, SIGSTOP, partitions, promotions.
    /// Asserts the pauses too, so it needs a machine that does little else.
    #[arg(long, conflicts_with = "scenario")]
    cluster: bool,
    /// How often each event happens to the cluster.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Write the measurements of the cluster into this file, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The seed of the random choices; each run prints its seed.
    #[arg(long)]
    seed: Option<u64>,
    /// SIGKILLs in each scenario, beside its own faults: of the server, and of the worker processes in `workers`.
    #[arg(long, default_value_t = 100)]
    kills: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Scenario {
    /// Nothing but SIGKILL, at random moments and during starts.
    Kill,
    /// SIGSTOP for longer than a lease, 30 times.
    Stop,
    /// The wall clock moves an hour forward and back between starts, 25 times.
    Clock,
    /// The disk is full and later has space again, 5 times; half of the kills strike while it is full.
    FullDisk,
    /// Workers of all contracts on one queue, under kills and 20 stops.
    Contracts,
    /// Three worker processes run 2,000 actions, under SIGKILL and SIGSTOP, the coordinator under SIGKILL.
    Workers,
    /// Bazel builds 300 actions, or three for each kill, while the coordinator is killed.
    Bazel,
}

/// The test binaries of the package `lessor` that contain scenarios, and the prefix of their tests.
const SUITES: [(&str, &str); 2] = [("chaos", ""), ("clients", "killed::")];
const CLUSTER: (&str, &str) = ("chaos", "cluster_");

impl Scenario {
    /// The scenario's test binary and the prefix of its test.
    fn suite(self) -> (&'static str, &'static str) {
        match self {
            Self::Kill => ("chaos", "kill_"),
            Self::Stop => ("chaos", "stop_"),
            Self::Clock => ("chaos", "clock_"),
            Self::FullDisk => ("chaos", "full_disk_"),
            Self::Contracts => ("chaos", "contracts_"),
            Self::Workers => ("chaos", "workers_"),
            Self::Bazel => ("clients", "killed::"),
        }
    }
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    step("tools", tools::ensure_test_tools)?;
    let suites = match args.scenario {
        _ if args.cluster => vec![CLUSTER],
        Some(scenario) => vec![scenario.suite()],
        None => SUITES.to_vec(),
    };
    // The tests run in another directory.
    let report = args.report.as_deref().map(std::path::absolute).transpose()?;
    step("chaos", || {
        for (binary, prefix) in suites {
            let mut command = cargo(root);
            command.args(["test", "--release", "--package", "lessor", "--test", binary, "--"]);
            command.args(["--nocapture", "--test-threads=1", prefix]);
            command.env("LESSOR_CHAOS_FORM", "long").env("LESSOR_CHAOS_KILLS", args.kills.to_string());
            command.env("LESSOR_CHAOS_ROUNDS", args.rounds.to_string());
            command.envs(report.iter().map(|file| ("LESSOR_CHAOS_REPORT", file)));
            command.envs(args.seed.map(|seed| ("LESSOR_CHAOS_SEED", seed.to_string())));
            run_command(&mut command)?;
        }
        Ok(())
    })
}
