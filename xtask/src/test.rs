//! `cargo xtask test`: the checks, then every test of the workspace, in one build without special features.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::steps::{cargo, shown, step};
use crate::{check, tools};

/// The same random cases in every run, so that a change alone makes the difference between green and red.
/// Plain `cargo test` takes new ones every time.
const CASES_SEED: &str = "20260101";

pub fn run(root: &Path) -> Result<()> {
    let started = Instant::now();
    step("tools", tools::ensure_test_tools)?;
    check::run(root)?;
    let tally = step("tests", || run_tests(root))?;
    println!(
        "{} passed, {} failed, {} ignored; everything took {:.0} s",
        tally.passed,
        tally.failed,
        tally.ignored,
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Runs all tests even after a failure, so that one run tells everything that is broken.
fn run_tests(root: &Path) -> Result<Tally> {
    let mut command = cargo(root);
    command.args(["test", "--workspace", "--no-fail-fast"]).stdout(Stdio::piped());
    command.env("PROPTEST_RNG_SEED", CASES_SEED);
    let mut child = command.spawn().with_context(|| format!("cannot start {}", shown(&command)))?;
    let stdout = child.stdout.take().context("the test run has no output")?;
    let mut tally = Tally::default();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.context("cannot read the output of the tests")?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        tally.add(&line);
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{} passed, {} failed ({} ended with {status})", tally.passed, tally.failed, shown(&command));
    }
    Ok(tally)
}

/// The sums of the closing lines of all test binaries.
#[derive(Default, Debug, PartialEq)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Tally {
    /// Reads a line like `test result: ok. 3 passed; 0 failed; 0 ignored; …`; other lines count nothing.
    fn add(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        for part in rest.split(['.', ';']) {
            if let Some((count, word)) = part.trim().split_once(' ')
                && let Ok(count) = count.parse::<u64>()
            {
                match word {
                    "passed" => self.passed += count,
                    "failed" => self.failed += count,
                    "ignored" => self.ignored += count,
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_lines_of_all_binaries_are_summed() {
        let mut tally = Tally::default();
        tally.add("running 4 tests");
        tally.add(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        tally.add("test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s");
        assert_eq!(tally, Tally { passed: 5, failed: 5, ignored: 1 });
    }
}
