//! Measures the pause of the writer during a snapshot of many tasks: the longest time of a small durable request during
//! the snapshot, beside the longest without a snapshot.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::in_process::InProcess;
use super::percentiles::Percentiles;
use super::report::{Line, Report};
use super::{backlog, fixture};

/// How long requests are measured without a snapshot.
const QUIET: Duration = Duration::from_secs(5);
/// The longest wait for a complete snapshot.
const MAX_SNAPSHOT: Duration = Duration::from_secs(600);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of tasks in the snapshot
    #[arg(long, default_value_t = 10_000_000)]
    tasks: usize,
}

pub(crate) async fn run(options: &Options, below: &Path, report: &Report) -> Result<()> {
    let directory = fixture::directory(below)?;
    let data = directory.path().join("data");
    report.note(&format!("writing a ledger of {} tasks …", options.tasks));
    let running = fixture::start(&data, u64::MAX).await?;
    let bench = InProcess::new(running.handle.clone(), 100);
    backlog::fill(&bench, options.tasks).await?;
    let without = measure_requests(&bench, || false, QUIET).await?;
    running.stop().await?;

    report.note("taking a snapshot …");
    let running = fixture::start(&data, 1).await?;
    let bench = InProcess::new(running.handle.clone(), 100);
    let began = Instant::now();
    let ledger = data.join("ledger");
    let with = measure_requests(&bench, || has_snapshot(&ledger), MAX_SNAPSHOT).await?;
    let took = began.elapsed();
    running.stop().await?;
    report.line(
        Line::new("snapshot")
            .with("tasks", options.tasks)
            .figure("snapshot_s", took.as_secs_f64())
            .figure("p50_ms", with.at_ms(50.0))
            .figure("p99_ms", with.at_ms(99.0))
            .figure("longest_ms", with.at_ms(100.0))
            .figure("longest_without_ms", without.at_ms(100.0)),
    );
    Ok(())
}

/// The times of small durable requests, one after the other, until `is_done` or the time is over.
async fn measure_requests(
    bench: &InProcess,
    is_done: impl Fn() -> bool,
    time: Duration,
) -> Result<Percentiles> {
    let began = Instant::now();
    let mut times = Vec::new();
    while began.elapsed() < time && !is_done() {
        let before = Instant::now();
        bench.handle().submit(bench.fresh_task()).await?;
        times.push(before.elapsed());
    }
    Ok(Percentiles::of(times))
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
