//! The watchdog of a test run: names tests that hang, and ends the run.
//!
//! The test harness prints a line when a test has run for a minute. A test that does not end for a long time after that
//! line hangs, and so does a binary whose tests together take far longer than they ever should. Building takes as long as
//! it takes: the time of a binary begins with its first line.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use procfs::process::all_processes;
use rustix::process::{Pid, Signal, kill_process};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Time for one test, after the harness has called it slow.
    pub slow_test: Duration,
    /// Time for all tests of one binary.
    pub binary: Duration,
}

/// Far above what any test takes, also on a busy machine.
pub(crate) const LIMITS: Limits =
    Limits { slow_test: Duration::from_secs(9 * 60), binary: Duration::from_secs(40 * 60) };

/// What the output of the test harness says about the tests that run now.
struct Progress {
    limits: Limits,
    binary_began: Option<Instant>,
    /// Tests that the harness has called slow and that have not ended, with the time of that line.
    slow: BTreeMap<String, Instant>,
}

impl Progress {
    fn line(&mut self, line: &str, now: Instant) {
        if line.starts_with("running ") && (line.ends_with(" test") || line.ends_with(" tests")) {
            (self.binary_began, self.slow) = (Some(now), BTreeMap::new());
        } else if line.starts_with("test result: ") {
            (self.binary_began, self.slow) = (None, BTreeMap::new());
        } else if let Some(rest) = line.strip_prefix("test ") {
            if let Some((name, _)) = rest.split_once(" has been running for over ") {
                self.slow.insert(name.to_owned(), now);
            } else if let Some((name, _)) = rest.split_once(" ... ") {
                self.slow.remove(name.trim_end_matches(" - should panic"));
            }
        }
    }

    /// When the run hangs, unless it prints something that says otherwise.
    fn deadline(&self) -> Option<Instant> {
        let slow_test = self.slow.values().min().map(|since| *since + self.limits.slow_test);
        let binary = self.binary_began.map(|began| began + self.limits.binary);
        slow_test.into_iter().chain(binary).min()
    }

    fn hanging_tests(&self) -> String {
        if self.slow.is_empty() {
            return "no single test was slow".to_owned();
        }
        self.slow.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

/// Shows each line of a test run to `visit` until the run ends. If a test hangs, the run is killed and the error names
/// the test.
pub(crate) fn watch(child: &mut Child, limits: Limits, mut visit: impl FnMut(&str)) -> Result<()> {
    let stdout = child.stdout.take().context("the test run has no output")?;
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n') {
            let is_last = line.is_err();
            if sender.send(line).is_err() || is_last {
                return;
            }
        }
    });
    let mut progress = Progress { limits, binary_began: None, slow: BTreeMap::new() };
    loop {
        let line = match progress.deadline() {
            Some(deadline) => lines.recv_timeout(deadline.saturating_duration_since(Instant::now())),
            None => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match line {
            Ok(line) => {
                let line = line.context("cannot read the output of the tests")?;
                let line = String::from_utf8_lossy(&line);
                progress.line(&line, Instant::now());
                visit(&line);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                kill_tree(child)?;
                bail!("the tests hang and were killed; still running: {}", progress.hanging_tests());
            }
        }
    }
}

/// Kills a process and everything that it started, and waits for the process.
fn kill_tree(child: &mut Child) -> Result<()> {
    let mut tree = vec![i32::try_from(child.id()).context("a process id is a number")?];
    let parents: Vec<(i32, i32)> = all_processes()
        .context("cannot list the processes")?
        .filter_map(|process| process.ok()?.stat().ok().map(|stat| (stat.pid, stat.ppid)))
        .collect();
    let mut at = 0;
    while let Some(parent) = tree.get(at).copied() {
        tree.extend(parents.iter().filter(|(_, ppid)| *ppid == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    for pid in tree.into_iter().filter_map(Pid::from_raw) {
        // A process that has ended meanwhile is what we want.
        let _ = kill_process(pid, Signal::KILL);
    }
    child.wait().context("cannot wait for the test run")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Runs a script in place of the tests, and waits until everything that it started is gone.
    fn run(script: &str, limits: Limits) -> (Result<()>, Vec<String>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut seen = Vec::new();
        let watched = watch(&mut child, limits, |line| seen.push(line.to_owned()));
        // The end of the stream: nothing has it open any more.
        let mut stderr = child.stderr.take().unwrap();
        std::io::copy(&mut stderr, &mut std::io::sink()).unwrap();
        (watched, seen)
    }

    const NEVER: Duration = Duration::from_secs(3_600);
    const SOON: Duration = Duration::from_millis(300);

    /// A test that hung once stopped every run until someone looked.
    #[test]
    fn a_hanging_test_is_named_and_killed_with_what_it_started() {
        // All lines come with one write, after everything is started.
        let script = "tail -f /dev/null & printf '%s\\n' 'running 3 tests' 'test a::quick ... ok' \
            'test b::slow has been running for over 60 seconds' 'test b::slow ... ok' \
            'test c::stuck has been running for over 60 seconds'; wait";
        let (watched, seen) = run(script, Limits { slow_test: SOON, binary: NEVER });
        let error = watched.unwrap_err().to_string();
        assert!(error.contains("c::stuck") && !error.contains("b::slow"), "{error}");
        assert_eq!(seen.len(), 5);
    }

    #[test]
    fn a_binary_that_takes_too_long_is_killed() {
        let limits = Limits { slow_test: NEVER, binary: SOON };
        let (watched, _) = run("echo 'running 1 test'; tail -f /dev/null", limits);
        assert!(watched.unwrap_err().to_string().contains("still running"));
    }

    #[test]
    fn nothing_is_limited_before_the_first_and_after_the_last_test_of_a_binary() {
        let now = Instant::now();
        let mut progress = Progress { limits: LIMITS, binary_began: None, slow: BTreeMap::new() };
        assert_eq!(progress.deadline(), None, "the tests are being built");
        progress.line("running 2 tests", now);
        assert_eq!(progress.deadline(), Some(now + LIMITS.binary));
        progress.line("test a - should panic ... ok", now);
        progress.line("test b has been running for over 60 seconds", now);
        assert_eq!(progress.deadline(), Some(now + LIMITS.slow_test));
        progress.line("test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured", now);
        assert_eq!(progress.deadline(), None);
    }
}
