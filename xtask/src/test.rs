//! `cargo xtask test`: runs the checks, then every test of the workspace, in one build without special features.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::steps::{cargo, render_command, step};
use crate::watchdog::{LIMITS, watch};
use crate::{check, three_nodes, tools};

/// Every run uses the same random cases, so that only a change can turn a green run red. Plain `cargo test` draws
/// new cases each time.
const CASES_SEED: &str = "20260101";

pub(crate) fn run(root: &Path) -> Result<()> {
    let started = Instant::now();
    step("tools", tools::ensure_test_tools)?;
    check::run(root)?;
    let mut counts = step("tests", || run_tests(tests(root)))?;
    counts += step("suites on three nodes", || {
        three_nodes::print_excluded();
        run_tests(three_nodes::command(root))
    })?;
    println!(
        "{} passed, {} failed, {} ignored; everything took {:.0} s",
        counts.passed,
        counts.failed,
        counts.ignored,
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

fn tests(root: &Path) -> Command {
    let mut command = cargo(root);
    command.args(["test", "--workspace", "--no-fail-fast"]);
    command
}

/// Runs all tests even after a failure, so that one run reports everything that is broken. Only a test that hangs ends
/// the run.
fn run_tests(mut command: Command) -> Result<TestCounts> {
    command.stdout(Stdio::piped()).env("PROPTEST_RNG_SEED", CASES_SEED);
    let mut child = command.spawn().with_context(|| format!("cannot start {}", render_command(&command)))?;
    let mut counts = TestCounts::default();
    watch(&mut child, LIMITS, |line| {
        println!("{line}");
        counts.add(line);
    })?;
    let status = child.wait()?;
    if !status.success() {
        bail!(
            "{} passed, {} failed ({} ended with {status})",
            counts.passed,
            counts.failed,
            render_command(&command)
        );
    }
    Ok(counts)
}

/// The sums of the result lines of all test binaries.
#[derive(Default, Debug, PartialEq)]
struct TestCounts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl std::ops::AddAssign for TestCounts {
    fn add_assign(&mut self, other: TestCounts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

impl TestCounts {
    /// Parses a line like `test result: ok. 3 passed; 0 failed; 0 ignored; …` and ignores other lines.
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
    fn the_result_lines_of_all_binaries_are_summed() {
        let mut counts = TestCounts::default();
        counts.add("running 4 tests");
        counts.add(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        counts.add("test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s");
        assert_eq!(counts, TestCounts { passed: 5, failed: 5, ignored: 1 });
    }
}
