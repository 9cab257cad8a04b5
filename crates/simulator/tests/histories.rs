//! Thousands of faulty histories, each judged by the auditor; every one of them can be replayed from its seed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use auditor::Coverage;

/// How many seeds are always run.
const HISTORIES: u64 = 2_000;

/// Runs seeds on all cores. Each history is one thread's own, so their order does not matter.
fn run_all(seeds: u64) -> Coverage {
    let (next, total) = (AtomicU64::new(0), Mutex::new(Coverage::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mine = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
                match simulator::run_many(mine.take_while(|seed| *seed < seeds), || true) {
                    Ok((_, coverage)) => total.lock().expect("no thread fails while it adds").add(&coverage),
                    Err(failure) => panic!("{failure}"),
                }
            });
        }
    });
    total.into_inner().expect("every thread has ended well")
}

#[test]
fn two_thousand_histories_are_without_fault_and_reach_every_interesting_state() {
    let coverage = run_all(HISTORIES);
    println!("{coverage}");
    assert_eq!(coverage.never(), [""; 0], "these were never reached");
}

#[test]
fn the_same_seed_gives_the_same_history_twice() {
    for seed in 0..100 {
        let hashes =
            [0, 1].map(|_| simulator::run(seed).map(|outcome| outcome.hash).map_err(|f| f.to_string()));
        assert_eq!(hashes[0], hashes[1], "seed {seed}");
    }
}

#[test]
fn seeds_that_once_showed_a_fault_show_it_no_more() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds");
    let mut seeds = Vec::new();
    for file in std::fs::read_dir(directory).expect("the directory of seeds") {
        let text = std::fs::read_to_string(file.expect("an entry").path()).expect("a file of seeds");
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim().to_owned());
        seeds.extend(lines.filter(|line| !line.is_empty()).map(|line| line.parse::<u64>().expect("a seed")));
    }
    assert!(!seeds.is_empty());
    for seed in seeds {
        if let Err(failure) = simulator::run(seed) {
            panic!("{failure}");
        }
    }
}
