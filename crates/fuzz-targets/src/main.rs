//! Fuzzes the targets with mutations of their corpus, on any toolchain: `cargo xtask fuzz` runs this when there is no
//! `cargo fuzz`.
//!
//! Each target runs in a process of its own. If a process ends by a signal, as it does when its stack is used up, another one
//! repeats its last inputs and writes each before it runs it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use fuzz_targets::campaign::{Campaign, corpus, record_panics, try_input};
use fuzz_targets::{TARGETS, Target, find};

/// Time to find the input that ended a process among those that it had last.
const REPEAT_SECONDS: u64 = 60;
/// Exit code of a process that has found a failure and reported it.
const FOUND: u8 = 3;
const PROGRESS: &str = "at ";

#[derive(Parser)]
struct Args {
    /// Fuzz this target only.
    #[arg(long)]
    target: Option<String>,
    /// How long each target is fuzzed.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Chooses the mutations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run this input only.
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
    /// Run in this process, beginning with the input of this number.
    #[arg(long, requires = "target", hide = true)]
    from: Option<u64>,
    /// Write each input before it is run.
    #[arg(long, hide = true)]
    write_each: bool,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let named = |name: &String| find(name).with_context(|| format!("there is no target {name}"));
    let target = args.target.as_ref().map(named).transpose()?;
    match (target, &args.input, args.from) {
        (Some(target), Some(input), _) => run_input(target, input),
        (Some(target), None, Some(from)) => run_here(target, &args, from),
        (target, ..) => {
            println!("{:<24} {:>12} {:>14}", "target", "executions", "executions/s");
            let targets = target.map_or(TARGETS, std::slice::from_ref);
            let mut failed = Vec::new();
            for target in targets {
                if !run_process(target, &args)? {
                    failed.push(target.name);
                }
            }
            if failed.is_empty() {
                return Ok(ExitCode::SUCCESS);
            }
            bail!("failures in {}", failed.join(", "))
        }
    }
}

fn fuzz_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The place of a file about a failure.
fn artifact(target: &Target, name: &str) -> Result<PathBuf> {
    let directory = fuzz_directory().join("artifacts").join(target.name);
    fs::create_dir_all(&directory)?;
    Ok(directory.canonicalize()?.join(name))
}

fn run_input(target: &Target, path: &Path) -> Result<ExitCode> {
    let input = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    record_panics();
    match try_input(target, &input) {
        Some(why) => bail!("{} fails: {why}", target.name),
        None => {
            println!("{} takes the input", target.name);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run_here(target: &Target, args: &Args, from: u64) -> Result<ExitCode> {
    record_panics();
    let corpus = corpus(target, &fuzz_directory().join("corpus").join(target.name))?;
    let write_each = if args.write_each { Some(artifact(target, "last")?) } else { None };
    let duration = Duration::from_secs(args.seconds);
    let campaign = Campaign { target, corpus, seed: args.seed, from, duration, write_each };
    let outcome = campaign.run(|number| println!("{PROGRESS}{number}"))?;
    let per_second = outcome.executions as f64 / outcome.took.as_secs_f64().max(0.001);
    println!("{:<24} {:>12} {per_second:>14.0}", target.name, outcome.executions);
    let Some(failure) = outcome.failure else { return Ok(ExitCode::SUCCESS) };
    let path = artifact(target, &format!("crash-{}", from + outcome.executions))?;
    fs::write(&path, &failure.input)?;
    println!("{} fails: {}\n  input: {}", target.name, failure.why, path.display());
    Ok(ExitCode::from(FOUND))
}

/// Whether the target took every input.
fn run_process(target: &Target, args: &Args) -> Result<bool> {
    let (status, last) = start(target, args.seconds, args.seed, 0, false)?;
    if status.code().is_some() {
        return Ok(status.success());
    }
    println!("{} ended its process ({status}); repeating its inputs from number {last}", target.name);
    let (status, _) = start(target, REPEAT_SECONDS, args.seed, last, true)?;
    match status.code() {
        None => println!("  input: {}", artifact(target, "last")?.display()),
        Some(_) => println!("  it did not end again; the machine may be out of memory"),
    }
    Ok(false)
}

/// Runs a campaign in a process of its own. Returns the number of the last input that it told of.
fn start(
    target: &Target,
    seconds: u64,
    seed: u64,
    from: u64,
    write_each: bool,
) -> Result<(std::process::ExitStatus, u64)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--target", target.name]);
    for (flag, value) in [("--seconds", seconds), ("--seed", seed), ("--from", from)] {
        command.args([flag, &value.to_string()]);
    }
    if write_each {
        command.arg("--write-each");
    }
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut last = from;
    for line in BufReader::new(child.stdout.take().context("the process has no output")?).lines() {
        let line = line?;
        match line.strip_prefix(PROGRESS).and_then(|number| number.parse().ok()) {
            Some(number) => last = number,
            None => println!("{line}"),
        }
    }
    Ok((child.wait()?, last))
}
