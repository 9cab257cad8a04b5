//! The proof can fail: each bug that is planted around the product or within it is found within a bounded number of
//! seeds, and by the rule that it breaks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use simulator::Plant;

/// Seeds within which every planted bug must show. The rarest needs some three hundred; most need fewer than ten.
const MOST_SEEDS: u64 = 1_000;
/// How many bugs there must be to plant.
const LEAST_PLANTS: usize = 24;
/// The end of what was said that is printed.
const SHOWN_CHARS: usize = 110;

/// Runs seeds until one breaks the rule that the bug is to break; the error says what was found instead.
fn find(plant: Plant) -> Result<(u64, String), String> {
    let mut other = None;
    for seed in 0..MOST_SEEDS {
        let Err(failure) = simulator::run_planted(seed, Some(plant)) else { continue };
        if plant.words().iter().any(|words| failure.what.contains(words)) {
            return Ok((seed + 1, failure.what));
        }
        other.get_or_insert(format!("{plant:?} is found by something else: {}", failure.what));
    }
    Err(other.unwrap_or_else(|| format!("{plant:?} is not found")))
}

fn end_of(what: &str) -> &str {
    &what[what.char_indices().rev().nth(SHOWN_CHARS).map_or(0, |(at, _)| at)..]
}

#[test]
fn every_planted_bug_is_found_within_its_seeds_by_the_rule_that_it_breaks() {
    let plants: Vec<Plant> = Plant::all().collect();
    assert!(plants.len() >= LEAST_PLANTS, "{} bugs", plants.len());
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(plant) = plants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match find(*plant) {
                        Ok((seeds, what)) => println!("{plant:?}: {seeds} seeds: …{}", end_of(&what)),
                        Err(missing) => missed.lock().expect("no thread fails while it adds").push(missing),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("every thread has ended well");
    assert!(missed.is_empty(), "within {MOST_SEEDS} seeds: {missed:#?}");
}
