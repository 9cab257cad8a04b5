//! How long the writer pauses while a snapshot of many tasks is taken: the longest time that a small durable request
//! took meanwhile, beside the longest without one.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::in_process::InProcess;
use super::report::{Line, Report};
use super::stats::Spread;
use super::{backlog, fixture};

/// How long requests are watched without a snapshot.
const QUIET: Duration = Duration::from_secs(5);
/// Longest wait for a snapshot to be complete.
const MAX_SNAPSHOT: Duration = Duration::from_secs(600);

#[derive(clap::Args)]
pub struct Options {
    /// How many tasks the snapshot holds
    #[arg(long, default_value_t = 10_000_000)]
    tasks: usize,
}

pub async fn run(options: &Options, below: &Path, report: &Report) -> Result<()> {
    let directory = fixture::directory(below)?;
    let data = directory.path().join("data");
    let mut quiet = fixture::options(&data);
    quiet.snapshot_after_bytes = u64::MAX;
    report.note(&format!("writing a ledger of {} tasks …", options.tasks));
    let running = fixture::start(quiet).await?;
    let bench = InProcess::new(running.handle.clone(), 100);
    backlog::fill(&bench, options.tasks).await?;
    let without = watch(&bench, || false, QUIET).await?;
    running.stop().await?;

    report.note("taking a snapshot …");
    let mut eager = fixture::options(&data);
    eager.snapshot_after_bytes = 1;
    let running = fixture::start(eager).await?;
    let bench = InProcess::new(running.handle.clone(), 100);
    let began = Instant::now();
    let ledger = data.join("ledger");
    let with = watch(&bench, || has_snapshot(&ledger), MAX_SNAPSHOT).await?;
    let took = began.elapsed();
    running.stop().await?;
    report.line(
        Line::new("snapshot")
            .with("tasks", options.tasks)
            .figure("snapshot_s", took.as_secs_f64())
            .figure("p50_ms", with.percentile_ms(50.0))
            .figure("p99_ms", with.percentile_ms(99.0))
            .figure("longest_ms", with.percentile_ms(100.0))
            .figure("longest_without_ms", without.percentile_ms(100.0)),
    );
    Ok(())
}

/// The times of small durable requests, one after the other, until it is done or the time is over.
async fn watch(bench: &InProcess, is_done: impl Fn() -> bool, time: Duration) -> Result<Spread> {
    let began = Instant::now();
    let mut times = Vec::new();
    while began.elapsed() < time && !is_done() {
        let before = Instant::now();
        bench.handle().submit(bench.fresh_task()).await?;
        times.push(before.elapsed());
    }
    Ok(Spread::of(times))
}

fn has_snapshot(ledger: &Path) -> bool {
    std::fs::read_dir(ledger).is_ok_and(|files| {
        files.flatten().any(|file| {
            let name = file.file_name();
            let name = name.to_string_lossy();
            name.starts_with("snapshot-") && !name.ends_with(".tmp")
        })
    })
}
