//! Runs seeds: each gives a history of its own. A failing seed runs again with a readable trace.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::bug::Bug;
use crate::cluster::{ClusterBug, ClusterConfig, ClusterWorld};
use crate::config::SimConfig;
use crate::prng::Prng;
use crate::trace::Trace;
use crate::world::World;
use auditor::Coverage;
use auditor::Rules;
use auditor::history::Entry;
use authority::injected_bug::{self, InjectedBug};

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
    cluster: Option<ClusterConfig>,
    lines: Vec<String>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        let of_cluster = if self.cluster.is_some() { " --cluster" } else { "" };
        writeln!(f, "replay: {}{of_cluster}", replay_command(self.seed))?;
        writeln!(f, "settings: {:?}", self.config)?;
        if let Some(cluster) = &self.cluster {
            writeln!(f, "cluster: {cluster:?}")?;
        }
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
    run_twice_if_it_fails(seed, (&config, None), |trace| {
        let injected = bug.and_then(Bug::injected_bug);
        catch(injected, || World::new(seed, &config, bug, trace).run())
    })
}

/// The history of a seed, and by which rules it is judged.
pub fn record(seed: u64) -> Result<(Rules, Vec<Entry>), String> {
    let config = SimConfig::draw(&mut Prng::new(seed));
    let mut trace = Trace::silent();
    let history = World::new(seed, &config, None, &mut trace).record()?;
    Ok((config.rules(), history))
}

/// Runs the cluster of one seed.
pub fn run_cluster(seed: u64) -> Result<Outcome, Box<Failure>> {
    run_cluster_with_bug(seed, None)
}

/// Runs the cluster of one seed with a bug injected in it.
pub fn run_cluster_with_bug(seed: u64, bug: Option<ClusterBug>) -> Result<Outcome, Box<Failure>> {
    let mut rng = Prng::new(seed);
    let (config, cluster) = (SimConfig::draw(&mut rng).without_disk(), ClusterConfig::draw(&mut rng));
    run_twice_if_it_fails(seed, (&config, Some(&cluster)), |trace| {
        let injected = bug.and_then(ClusterBug::injected_bug);
        catch(injected, || ClusterWorld::new(seed, (&config, &cluster), bug, trace).run())
    })
}

/// Runs seeds on all cores, until one fails and `goes_on` does not say to go on. Gives how many ran without fault, and what
/// they reached. Each history is one thread's own, so their order does not matter.
pub fn run_many(
    seeds: Range<u64>,
    run: impl Fn(u64) -> Result<Outcome, Box<Failure>> + Sync,
    goes_on: impl Fn(&Failure) -> bool + Sync,
) -> Result<(u64, Coverage), Box<Failure>> {
    let (next, all) = (AtomicU64::new(seeds.start), Mutex::new((0, Coverage::default(), None)));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let ran = run(seed);
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            match ran {
                Ok(outcome) => {
                    all.0 += 1;
                    all.1.add(&outcome.coverage);
                }
                Err(failure) if goes_on(&failure) => {}
                Err(failure) => {
                    all.2.get_or_insert(failure);
                    next.store(seeds.end, Ordering::Relaxed);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let (count, coverage, failure) = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    failure.map_or(Ok((count, coverage)), Err)
}

/// Runs a history, and again with a readable trace if it fails.
fn run_twice_if_it_fails(
    seed: u64,
    (config, cluster): (&SimConfig, Option<&ClusterConfig>),
    run: impl Fn(&mut Trace) -> Result<Coverage, String>,
) -> Result<Outcome, Box<Failure>> {
    let mut trace = Trace::silent();
    if let Ok(coverage) = run(&mut trace) {
        return Ok(Outcome { hash: trace.hash(), events: trace.events, coverage });
    }
    let mut trace = Trace::readable();
    let what = run(&mut trace).err().unwrap_or_else(|| "it failed once, and not when it was repeated".into());
    let lines = trace.lines().cloned().collect();
    Err(Box::new(Failure { seed, what, config: config.clone(), cluster: cluster.cloned(), lines }))
}

/// Runs a history with a bug injected in it. A panic is a failure too.
fn catch(
    injected: Option<InjectedBug>,
    history: impl FnOnce() -> Result<Coverage, String>,
) -> Result<Coverage, String> {
    injected_bug::inject(injected);
    let result = catch_unwind(AssertUnwindSafe(history));
    injected_bug::inject(None);
    result.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", message.unwrap_or("without a message")))
    })
}
