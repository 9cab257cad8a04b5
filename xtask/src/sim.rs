//! `cargo xtask sim`: runs simulated histories in a release build.

use std::path::Path;

use anyhow::Result;

use crate::steps::{cargo, run as run_command, step};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of seeds to run.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run clusters of several nodes over a simulated database, instead of single coordinators.
    #[arg(long)]
    cluster: bool,
    /// Go on after a failure, and print one line for each.
    #[arg(long)]
    keep_going: bool,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    step("sim", || {
        let mut command = cargo(root);
        command.args(["run", "--quiet", "--release", "--package", "simulator", "--"]);
        command.args(["--seeds", &args.seeds.to_string(), "--from", &args.from.to_string()]);
        command.args(args.cluster.then_some("--cluster"));
        command.args(args.keep_going.then_some("--keep-going"));
        run_command(&mut command)
    })
}
