//! The proof can fail: each bug that is injected around the product or within it is found within a bounded number of
//! seeds, and by the rule that it breaks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use authority::injected_bug::InjectedBug;
use simulator::{Bug, ClusterBug, Failure, Outcome};

/// Seeds within which every injected bug must show. The rarest needs some three hundred; most need fewer than ten.
const MAX_SEEDS: u64 = 1_000;
/// The same for the bugs of a cluster. Most need fewer than a hundred; the three of [`FIRST_SEEDS`] show in about one of a thousand.
const MAX_CLUSTER_SEEDS: u64 = 3_000;
/// How many bugs there must be.
const MIN_BUGS: usize = 24;
const MIN_CLUSTER_BUGS: usize = 18;
/// How much of the end of an error message is printed.
const PRINTED_CHARS: usize = 110;

/// Where to begin the search for a bug that only few histories show, to save time: the search goes on with the seeds before.
const FIRST_SEEDS: &[(ClusterBug, u64)] = &[
    (ClusterBug::KeyWithoutLink, 1_170),
    (ClusterBug::Inside(InjectedBug::HeldBatchesForgotten), 1_095),
    (ClusterBug::ForkFollowed, 1_040),
];

/// Runs seeds until one breaks a rule that the bug is to break, and breaks none without the bug; the error says what was found
/// instead.
fn find(
    seeds: impl Iterator<Item = u64>,
    expected: &[&str],
    run: impl Fn(u64) -> Result<Outcome, Box<Failure>>,
    run_clean: impl Fn(u64) -> Result<Outcome, Box<Failure>>,
) -> Result<(u64, String), String> {
    let mut other = None;
    for (count, seed) in (1..).zip(seeds) {
        let Err(failure) = run(seed) else { continue };
        if expected.iter().any(|error| failure.what.contains(error)) {
            run_clean(seed).map_err(|clean| format!("not the cause: {}", clean.what))?;
            return Ok((count, format!("seed {seed}: {}", failure.what)));
        }
        other.get_or_insert(format!("found by something else: {}", failure.what));
    }
    Err(other.unwrap_or_else(|| "not found".to_owned()))
}

/// Finds each of these bugs, on all cores.
fn find_all<B: Copy + std::fmt::Debug + Sync>(
    bugs: &[B],
    find: impl Fn(B) -> Result<(u64, String), String> + Sync,
) {
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match find(*bug) {
                        Ok((seeds, what)) => println!("{bug:?}: {seeds} seeds: {}", ends_of(&what)),
                        Err(missing) => {
                            let mut missed = missed.lock().expect("no thread fails while it adds");
                            missed.push(format!("{bug:?} is {missing}"));
                        }
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("every thread has ended well");
    assert!(missed.is_empty(), "{missed:#?}");
}

fn ends_of(what: &str) -> String {
    let end = what.char_indices().rev().nth(PRINTED_CHARS).map_or(0, |(at, _)| at);
    let seed = what.split(':').next().unwrap_or_default();
    format!("{seed}: …{}", &what[end..])
}

#[test]
fn every_injected_bug_is_found_within_its_seeds_by_the_rule_that_it_breaks() {
    let bugs: Vec<Bug> = Bug::all().collect();
    assert!(bugs.len() >= MIN_BUGS, "{} bugs", bugs.len());
    find_all(&bugs, |bug: Bug| {
        let run = |seed| simulator::run_with_bug(seed, Some(bug));
        find(0..MAX_SEEDS, bug.expected_errors(), run, simulator::run)
    });
}

#[test]
fn every_injected_bug_of_a_cluster_is_found_within_its_seeds_by_the_rule_that_it_breaks() {
    let bugs: Vec<ClusterBug> = ClusterBug::all().collect();
    assert!(bugs.len() >= MIN_CLUSTER_BUGS, "{} bugs", bugs.len());
    find_all(&bugs, |bug: ClusterBug| {
        let first = FIRST_SEEDS.iter().find(|(rare, _)| *rare == bug).map_or(0, |(_, first)| *first);
        let run = |seed| simulator::run_cluster_with_bug(seed, Some(bug));
        let seeds = (first..MAX_CLUSTER_SEEDS).chain(0..first);
        find(seeds, bug.expected_errors(), run, simulator::run_cluster)
    });
}
