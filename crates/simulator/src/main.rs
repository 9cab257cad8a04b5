//! Runs many seeds and prints what they reached. Made for `cargo xtask sim`.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

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
}

fn main() -> ExitCode {
    let args = Args::parse();
    let began = Instant::now();
    match simulator::run_many(args.from..args.from.saturating_add(args.seeds), || true) {
        Ok((count, coverage)) => {
            println!("{coverage}");
            let seconds = began.elapsed().as_secs_f64();
            println!("{count} histories without fault in {seconds:.1} s");
            if count >= ENOUGH_SEEDS && !coverage.never().is_empty() {
                println!("never reached: {}", coverage.never().join("; "));
            }
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}
