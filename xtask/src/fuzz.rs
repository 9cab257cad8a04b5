//! `cargo xtask fuzz`: fuzzes the decoders, with `cargo fuzz` if it is installed and else with our own mutations.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::steps::{cargo, run as run_command, step};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fuzz this target only; `fuzz/fuzz_targets` has a file for each.
    #[arg(long)]
    target: Option<String>,
    /// How long each target is fuzzed.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Chooses the mutations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run this input only, such as one that failed.
    #[arg(long, requires = "target")]
    input: Option<std::path::PathBuf>,
    /// Use our own mutations even if `cargo fuzz` is installed.
    #[arg(long)]
    without_cargo_fuzz: bool,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let targets = targets(root)?;
    if let Some(name) = args.target.as_ref().filter(|name| !targets.contains(name)) {
        bail!("there is no target {name}; there are {}", targets.join(", "));
    }
    if args.input.is_none() && !args.without_cargo_fuzz && has_cargo_fuzz() {
        let chosen = targets.iter().filter(|name| args.target.as_ref().is_none_or(|only| only == *name));
        return chosen
            .into_iter()
            .try_for_each(|name| step(name, || run_command(&mut cargo_fuzz(root, name, args))));
    }
    step("fuzz", || run_command(&mut own_mutations(root, args)))
}

fn cargo_fuzz(root: &Path, target: &str, args: &Args) -> Command {
    // The toolchain that runs xtask has set variables for itself.
    let mut command = Command::new("cargo");
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").current_dir(root);
    command.args(["+nightly", "fuzz", "run", target, "--"]);
    command.args([format!("-max_total_time={}", args.seconds), format!("-seed={}", args.seed)]);
    command
}

fn own_mutations(root: &Path, args: &Args) -> Command {
    let mut command = cargo(root);
    command.args(["run", "--quiet", "--profile", "fuzz", "--package", "fuzz-targets", "--"]);
    command.args(["--seconds", &args.seconds.to_string(), "--seed", &args.seed.to_string()]);
    if let Some(target) = &args.target {
        command.args(["--target", target]);
    }
    if let Some(input) = &args.input {
        command.arg("--input").arg(std::path::absolute(input).as_deref().unwrap_or(input));
    }
    command
}

/// Whether there is a nightly toolchain, which `cargo fuzz` needs, and `cargo fuzz` itself.
fn has_cargo_fuzz() -> bool {
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz", "--version"]).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The names of the files of the targets.
fn targets(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.join("fuzz/fuzz_targets"))? {
        names.extend(entry?.path().file_stem().and_then(|name| name.to_str()).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}
