//! The one door to every developer command: `cargo xtask help` lists them.
//!
//! The same commands run on a laptop and in CI. Nothing here is part of the product, and nothing in the
//! product depends on it.

mod chaos;
mod check;
mod docs;
mod sim;
mod steps;
mod test;
mod tidy;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Every developer command of Lessor. Start with `cargo xtask test`: it is what CI runs.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything that must hold before a change is merged: `check`, then every test of the workspace.
    ///
    /// Installs by package name what a test needs and the machine lacks (this needs root), and says so.
    Test,
    /// The checks without the tests: format, clippy with warnings as errors, tidy (the house rules as code).
    Check,
    /// The long form of the chaos tests: the real binary, built for release, killed, stopped, starved of disk.
    ///
    /// The short form is part of `test`. In the end every answer that the server ever gave must still be true.
    Chaos(chaos::Args),
    /// Many simulated histories in a release build: one seed is one history, with its own faults.
    ///
    /// Two thousand of them are part of `test`. A seed that fails is told event by event.
    Sim(sim::Args),
    /// Build the API documentation of our own crates, with warnings as errors.
    Docs,
}

const EXAMPLES: &str = "Examples:
  cargo xtask test                      before you push
  cargo xtask check                     while you work
  cargo xtask sim --seeds 100000        many histories, for an hour to spare
  cargo xtask sim --seeds 1 --from 7    one history again
  cargo xtask chaos --scenario kill     one scenario in its long form
  cargo xtask chaos --seed 7            the random choices of an earlier run again";

fn main() -> ExitCode {
    let root = repository_root();
    let result = match Cli::parse().command {
        Command::Test => test::run(&root),
        Command::Check => check::run(&root),
        Command::Chaos(args) => chaos::run(&root, &args),
        Command::Sim(args) => sim::run(&root, &args),
        Command::Docs => docs::run(&root),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The directory above this crate, so that the commands work from any directory of the repository.
fn repository_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the repository's root").to_path_buf()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
