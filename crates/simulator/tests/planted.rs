//! The proof can fail: each bug that is planted around the product or within it is found within a bounded number of
//! seeds, and by the rule that it breaks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use simulator::Plant;

/// Seeds within which every planted bug must show.
const MOST_SEEDS: u64 = 600;
/// How many bugs there must be to plant.
const LEAST_PLANTS: usize = 24;
/// The end of what was said that is printed.
const SHOWN_CHARS: usize = 110;

/// How many seeds it took, and what was said.
fn find(plant: Plant) -> Option<(u64, String)> {
    let failure = |seed| simulator::run_planted(seed, Some(plant)).err();
    (0..MOST_SEEDS).find_map(|seed| failure(seed).map(|failure| (seed + 1, failure.what)))
}

/// What is wrong with how a bug was found, if anything is.
fn judge(plant: Plant) -> Option<String> {
    let Some((seeds, what)) = find(plant) else { return Some(format!("{plant:?} is not found")) };
    let from = what.char_indices().rev().nth(SHOWN_CHARS).map_or(0, |(at, _)| at);
    println!("{plant:?}: {seeds} seeds: …{}", &what[from..]);
    let right = plant.words().iter().any(|words| what.contains(words));
    (!right).then(|| format!("{plant:?} is found by something else: {what}"))
}

#[test]
fn every_planted_bug_is_found_within_its_seeds_by_the_rule_that_it_breaks() {
    let plants: Vec<Plant> = Plant::all().collect();
    assert!(plants.len() >= LEAST_PLANTS, "{} bugs", plants.len());
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(plant) = plants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = judge(*plant);
                    wrong.lock().expect("no thread fails while it adds").extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("every thread has ended well");
    assert!(wrong.is_empty(), "within {MOST_SEEDS} seeds: {wrong:#?}");
}
