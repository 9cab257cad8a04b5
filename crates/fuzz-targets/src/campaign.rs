//! Runs a target over mutated inputs until its time is over, or until an input fails.

use std::collections::HashSet;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::Target;
use crate::mutator::Mutator;

/// An input may take this long. One that takes longer is a failure: somebody could stop a server with it.
const MAX_RUN: Duration = Duration::from_secs(2);
/// How often the caller hears how far the campaign is.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// Most memory of the process. A decoder that takes this much was led to it by a length in its input.
const MAX_MEMORY_KIB: u64 = 2 << 20;

/// The message of a panic on any thread. A server answers for its own, so that no panic of it reaches the caller.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

pub struct Campaign<'a> {
    pub target: &'a Target,
    pub corpus: Vec<Vec<u8>>,
    pub seed: u64,
    /// The number of the first input.
    pub from: u64,
    pub duration: Duration,
    /// Every input is written here before it is run, so that it is there when the process ends with it.
    pub write_each: Option<PathBuf>,
}

pub struct Outcome {
    pub executions: u64,
    pub took: Duration,
    pub failure: Option<Failure>,
}

pub struct Failure {
    pub input: Vec<u8>,
    pub why: String,
}

impl Campaign<'_> {
    /// Calls `progress` every now and then with the number of the next input.
    pub fn run(self, mut progress: impl FnMut(u64)) -> io::Result<Outcome> {
        let mutator = Mutator::new(self.corpus, self.seed);
        let (started, mut reported, mut number) = (Instant::now(), Instant::now(), self.from);
        let failure = loop {
            let input = mutator.input(number);
            if let Some(path) = &self.write_each {
                fs::write(path, &input)?;
            }
            if let Some(why) = try_input(self.target, &input) {
                break Some(Failure { input, why });
            }
            number += 1;
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                progress(number);
                if let Some(kib) = peak_memory_kib().filter(|kib| *kib > MAX_MEMORY_KIB) {
                    break Some(Failure { input, why: format!("the process took {kib} KiB of memory") });
                }
            }
            if started.elapsed() >= self.duration {
                break None;
            }
        };
        Ok(Outcome { executions: number - self.from, took: started.elapsed(), failure })
    }
}

/// Why the target fails with this input.
pub fn try_input(target: &Target, input: &[u8]) -> Option<String> {
    let started = Instant::now();
    let _ = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let took = started.elapsed();
    let panicked = PANIC.lock().ok().and_then(|mut panic| panic.take());
    panicked.or_else(|| (took > MAX_RUN).then(|| format!("it took {took:.1?}")))
}

/// Keeps the messages of panics instead of printing them.
pub fn record_panics() {
    panic::set_hook(Box::new(|info| {
        if let Ok(mut panic) = PANIC.lock() {
            panic.get_or_insert(info.to_string());
        }
    }));
}

/// The inputs in the files of a target's corpus, and its seeds, once each and in the same order every time.
pub fn corpus(target: &Target, directory: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut files: Vec<_> = fs::read_dir(directory)?.collect::<io::Result<_>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    let stored = files.iter().map(|file| fs::read(file.path())).collect::<io::Result<Vec<_>>>()?;
    let mut known = HashSet::new();
    Ok(stored.into_iter().chain((target.seeds)()).filter(|input| known.insert(input.clone())).collect())
}

fn peak_memory_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A decoder with a bug behind two bytes.
    const BUGGY: Target = Target {
        name: "buggy",
        run: |input| assert!(!(input.len() > 9 && input[3] == 0xa7 && input[9] == 0x5c), "two bytes"),
        seeds: || vec![vec![0; 16]],
    };

    #[test]
    fn a_bug_behind_two_bytes_is_found_and_its_input_fails_again() {
        record_panics();
        let (corpus, duration) = ((BUGGY.seeds)(), Duration::from_secs(60));
        let campaign = Campaign { target: &BUGGY, corpus, seed: 1, from: 0, duration, write_each: None };
        let outcome = campaign.run(|_| {}).unwrap();
        let failure = outcome.failure.expect("the bug is found");
        assert!(failure.why.contains("two bytes"), "{}", failure.why);
        assert!(try_input(&BUGGY, &failure.input).is_some());
        assert!(try_input(&BUGGY, &[0; 16]).is_none());
    }
}
