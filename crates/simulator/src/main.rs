//! Runs many seeds and prints what they reached. Made for `cargo xtask sim`.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use simulator::{Failure, run_many};

/// From this many on, something that was never reached is worth a line.
const ENOUGH_SEEDS: u64 = 1_000;

#[derive(Parser)]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Clusters instead of single coordinators.
    #[arg(long)]
    cluster: bool,
    /// Go on after a failure, and print one line for each.
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let began = Instant::now();
    let seeds = args.from..args.from.saturating_add(args.seeds);
    let run = if args.cluster { simulator::run_cluster } else { simulator::run };
    let goes_on = |failure: &Failure| {
        if args.keep_going {
            println!("seed {}: {}", failure.seed, failure.what);
        }
        args.keep_going
    };
    match run_many(seeds, run, goes_on) {
        Ok((count, coverage)) => {
            println!("{coverage}");
            let seconds = began.elapsed().as_secs_f64();
            println!("{count} histories without fault in {seconds:.1} s");
            let never = if args.cluster { coverage.never_in_cluster() } else { coverage.never() };
            if count >= ENOUGH_SEEDS && !never.is_empty() {
                println!("never reached: {}", never.join("; "));
            }
            if count == args.seeds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}
