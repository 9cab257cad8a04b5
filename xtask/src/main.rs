//! The entry point of all developer commands; `cargo xtask help` lists them.
//!
//! The same commands run on a laptop and in CI. Nothing here is part of the product, and the product does not
//! depend on it.

mod advisories;
mod chaos;
mod check;
mod docs;
mod fuzz;
mod lock_file;
mod sbom;
mod sim;
mod steps;
mod test;
mod three_nodes;
mod tidy;
mod tools;
mod watchdog;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of Lessor. Start with `cargo xtask test`: CI runs the same.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run `check`, then every test of the workspace. Must pass before a change is merged.
    ///
    /// Installs missing tools that the tests need, by package name (this needs root), and prints what it installs. Kills
    /// and names a test that hangs: one that takes ten minutes, or one of a binary that takes forty.
    Test,
    /// Run the checks without the tests: format, tidy (the project's rules), advisories, clippy with warnings as errors.
    Check,
    /// Run the long form of the chaos tests: kill (100 times in each), stop and fill the disk of the real binary, in a release build.
    ///
    /// The short form is part of `test`. At the end, every answer that the server gave must still be true.
    Chaos(chaos::Args),
    /// Run many simulated histories in a release build: one seed gives one history, with its own faults.
    ///
    /// `test` runs two thousand of them. For a seed that fails, every event is printed.
    Sim(sim::Args),
    /// Fuzz the decoders of everything that comes from outside or from a disk, for a time each.
    ///
    /// Uses `cargo fuzz` with a nightly toolchain if both are installed, and else mutates the corpus in a build with
    /// optimization and assertions. `test` runs every target over its corpus.
    Fuzz(fuzz::Args),
    /// Print a software bill of materials: every crate of Cargo.lock, in CycloneDX JSON.
    Sbom,
    /// Write the tables of docs/guarantees.md from docs/guarantees.toml and the names of the tests.
    Guarantees,
    /// Build the API documentation of our own crates, with warnings as errors.
    Docs,
}

const EXAMPLES: &str = "Examples:
  cargo xtask test                      before you push
  cargo xtask check                     while you work
  cargo xtask sim --seeds 100000        many histories, about an hour
  cargo xtask sim --seeds 1 --from 7    repeat one history
  cargo xtask fuzz --seconds 60         every decoder, a minute each
  cargo xtask sbom > sbom.json          what the binary is made of
  cargo xtask chaos --scenario kill     one scenario, in its long form
  cargo xtask chaos --kills 20          fewer SIGKILLs in each scenario than its 100
  cargo xtask chaos --cluster           nodes and their database, with the longest pauses
  cargo xtask chaos --seed 7            repeat the random choices of an earlier run";

fn main() -> ExitCode {
    let root = repository_root();
    let result = match Cli::parse().command {
        Command::Test => test::run(&root),
        Command::Check => check::run(&root),
        Command::Chaos(args) => chaos::run(&root, &args),
        Command::Sim(args) => sim::run(&root, &args),
        Command::Fuzz(args) => fuzz::run(&root, &args),
        Command::Sbom => sbom::run(&root),
        Command::Guarantees => tidy::write_guarantees(&root),
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

/// The parent directory of this crate, so that the commands work from any directory of the repository.
fn repository_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask is a directory of the repository").to_path_buf()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
