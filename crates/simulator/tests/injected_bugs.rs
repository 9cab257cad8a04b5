//! The proof can fail: each bug that is injected around the product or within it is found within a bounded number of
//! seeds, and by the rule that it breaks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use simulator::Bug;

/// Seeds within which every injected bug must show. The rarest needs some three hundred; most need fewer than ten.
const MAX_SEEDS: u64 = 1_000;
/// How many bugs there must be.
const MIN_BUGS: usize = 24;
/// How much of the end of an error message is printed.
const PRINTED_CHARS: usize = 110;

/// Runs seeds until one breaks the rule that the bug is to break; the error says what was found instead.
fn find(bug: Bug) -> Result<(u64, String), String> {
    let mut other = None;
    for seed in 0..MAX_SEEDS {
        let Err(failure) = simulator::run_with_bug(seed, Some(bug)) else { continue };
        if bug.expected_errors().iter().any(|error| failure.what.contains(error)) {
            return Ok((seed + 1, failure.what));
        }
        other.get_or_insert(format!("{bug:?} is found by something else: {}", failure.what));
    }
    Err(other.unwrap_or_else(|| format!("{bug:?} is not found")))
}

fn end_of(what: &str) -> &str {
    &what[what.char_indices().rev().nth(PRINTED_CHARS).map_or(0, |(at, _)| at)..]
}

#[test]
fn every_injected_bug_is_found_within_its_seeds_by_the_rule_that_it_breaks() {
    let bugs: Vec<Bug> = Bug::all().collect();
    assert!(bugs.len() >= MIN_BUGS, "{} bugs", bugs.len());
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match find(*bug) {
                        Ok((seeds, what)) => println!("{bug:?}: {seeds} seeds: …{}", end_of(&what)),
                        Err(missing) => missed.lock().expect("no thread fails while it adds").push(missing),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("every thread has ended well");
    assert!(missed.is_empty(), "within {MAX_SEEDS} seeds: {missed:#?}");
}
