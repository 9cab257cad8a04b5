//! Thousands of faulty histories, each judged by the auditor; every one of them can be replayed from its seed.

use std::path::Path;

use auditor::Coverage;
use simulator::{Failure, Outcome};

/// How many seeds are always run, of single coordinators and of clusters.
const HISTORIES: u64 = 2_000;

/// Runs all of these seeds.
fn run_all(run: fn(u64) -> Result<Outcome, Box<Failure>>) -> Coverage {
    match simulator::run_many(0..HISTORIES, run, |_| false) {
        Ok((_, coverage)) => coverage,
        Err(failure) => panic!("{failure}"),
    }
}

fn check_twice(run: fn(u64) -> Result<Outcome, Box<Failure>>) {
    for seed in 0..100 {
        let hashes = [0, 1].map(|_| run(seed).map(|outcome| outcome.hash).map_err(|f| f.to_string()));
        assert_eq!(hashes[0], hashes[1], "seed {seed}");
    }
}

/// The seeds of a file, one to a line.
fn seeds_in(file: &str) -> Vec<u64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(file);
    let text = std::fs::read_to_string(path).expect("a file of seeds");
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(|line| line.parse().expect("a seed")).collect()
}

fn check_seeds_in(file: &str, run: fn(u64) -> Result<Outcome, Box<Failure>>) {
    let seeds = seeds_in(file);
    assert!(!seeds.is_empty());
    for seed in seeds {
        if let Err(failure) = run(seed) {
            panic!("{failure}");
        }
    }
}

#[test]
fn two_thousand_histories_are_without_fault_and_reach_every_interesting_state() {
    let coverage = run_all(simulator::run);
    println!("{coverage}");
    assert_eq!(coverage.never(), [""; 0], "these were never reached");
}

#[test]
fn two_thousand_histories_of_clusters_are_without_fault_and_reach_every_interesting_state() {
    let coverage = run_all(simulator::run_cluster);
    println!("{coverage}");
    assert_eq!(coverage.never_in_cluster(), [""; 0], "these were never reached");
}

#[test]
fn the_same_seed_gives_the_same_history_twice() {
    check_twice(simulator::run);
    check_twice(simulator::run_cluster);
}

#[test]
fn seeds_that_once_showed_a_fault_show_it_no_more() {
    check_seeds_in("regressions.txt", simulator::run);
    check_seeds_in("cluster-regressions.txt", simulator::run_cluster);
}
