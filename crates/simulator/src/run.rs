//! Runs seeds: each gives a history of its own. A failing seed runs again with a readable trace.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bug::Bug;
use crate::config::SimConfig;
use crate::prng::Prng;
use crate::trace::Trace;
use crate::world::World;
use auditor::Coverage;
use auditor::Rules;
use auditor::history::Entry;
use authority::injected_bug;

/// A history without fault.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub hash: u64,
    pub events: u64,
    pub coverage: Coverage,
}

/// A history that shows a fault of the product, or of the simulator.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub what: String,
    config: SimConfig,
    lines: Vec<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        writeln!(f, "replay: {}", replay_command(self.seed))?;
        writeln!(f, "settings: {:?}", self.config)?;
        writeln!(f, "the last events:")?;
        self.lines.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// What to type to see the history of a seed again.
pub fn replay_command(seed: u64) -> String {
    format!("cargo xtask sim --seeds 1 --from {seed}")
}

/// Runs one seed.
pub fn run(seed: u64) -> Result<Outcome, Box<Failure>> {
    run_with_bug(seed, None)
}

/// Runs one seed with a bug injected in it.
pub fn run_with_bug(seed: u64, bug: Option<Bug>) -> Result<Outcome, Box<Failure>> {
    let config = SimConfig::draw(&mut Prng::new(seed));
    let mut trace = Trace::silent();
    match attempt(seed, &config, bug, &mut trace) {
        Ok(coverage) => Ok(Outcome { hash: trace.hash(), events: trace.events, coverage }),
        Err(_) => {
            let mut trace = Trace::readable();
            let what = attempt(seed, &config, bug, &mut trace)
                .err()
                .unwrap_or_else(|| "it failed once, and not when it was repeated".into());
            let lines = trace.lines().cloned().collect();
            Err(Box::new(Failure { seed, what, config, lines }))
        }
    }
}

/// The history of a seed, and by which rules it is judged.
pub fn record(seed: u64) -> Result<(Rules, Vec<Entry>), String> {
    let config = SimConfig::draw(&mut Prng::new(seed));
    let mut trace = Trace::silent();
    let history = World::new(seed, &config, None, &mut trace).record()?;
    Ok((config.rules(), history))
}

/// Runs seeds one after another, until one fails or `go_on` says to stop. Gives how many ran, and what they reached.
pub fn run_many(
    seeds: impl IntoIterator<Item = u64>,
    mut go_on: impl FnMut() -> bool,
) -> Result<(u64, Coverage), Box<Failure>> {
    let (mut count, mut coverage) = (0, Coverage::default());
    for seed in seeds {
        if !go_on() {
            break;
        }
        coverage.add(&run(seed)?.coverage);
        count += 1;
    }
    Ok((count, coverage))
}

fn attempt(seed: u64, config: &SimConfig, bug: Option<Bug>, trace: &mut Trace) -> Result<Coverage, String> {
    injected_bug::inject(bug.and_then(Bug::injected_bug));
    let result = catch_unwind(AssertUnwindSafe(|| World::new(seed, config, bug, trace).run()));
    injected_bug::inject(None);
    result.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", message.unwrap_or("without a message")))
    })
}
