//! The proof can fail: each bug planted around the product is found within a bounded number of seeds.

use simulator::Plant;

/// Seeds within which every planted bug must show.
const MOST_SEEDS: u64 = 400;

fn seeds_until_found(plant: Plant) -> Option<(u64, String)> {
    (0..MOST_SEEDS).find_map(|seed| {
        simulator::run_planted(seed, Some(plant)).err().map(|failure| (seed + 1, failure.what.clone()))
    })
}

#[test]
fn every_planted_bug_is_found_within_its_seeds() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for plant in Plant::all() {
        let began = std::time::Instant::now();
        match seeds_until_found(plant) {
            Some((seeds, what)) => {
                let what: String = what.chars().rev().take(150).collect();
                println!(
                    "{plant:?}: {} ms: seed {seeds}: …{}",
                    began.elapsed().as_millis(),
                    what.chars().rev().collect::<String>()
                );
            }
            None => {
                println!("MISSED {plant:?} {} ms", began.elapsed().as_millis());
                missed.push(plant)
            }
        }
    }
    assert!(missed.is_empty(), "not found in {MOST_SEEDS} seeds: {missed:?}");
}
