//! Measures a start with and without a snapshot: the whole start, from the directory to serving, and the replay, which
//! reads, verifies and decodes records on one thread and applies them on another.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use super::in_process::InProcess;
use super::report::{Line, Report};
use super::{backlog, fixture};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of tasks in the ledger, a tenth of them completed
    #[arg(long, default_value_t = 1_000_000)]
    tasks: usize,
}

pub(crate) async fn run(options: &Options, below: &Path, report: &Report) -> Result<()> {
    for snapshots in [false, true] {
        let directory = fixture::directory(below)?;
        let data = directory.path().join("data");
        let snapshot_after_bytes = (!snapshots).then_some(u64::MAX);
        report.note(&format!("writing a ledger of {} tasks …", options.tasks));
        let running = fixture::start(&data, snapshot_after_bytes).await?;
        let bench = InProcess::new(running.handle.clone(), 100);
        backlog::fill(&bench, options.tasks).await?;
        finish(&bench, options.tasks / 10).await?;
        running.stop().await?;
        let running = fixture::start(&data, snapshot_after_bytes).await?;
        let found = running.report.clone();
        running.stop().await?;
        let replay_s = found.replay_took.as_secs_f64();
        report.line(
            Line::new("replay")
                .with("tasks", options.tasks)
                .with("snapshot", found.snapshot.is_some())
                .with("records", found.replayed)
                .figure("start_s", found.took.as_secs_f64())
                .figure("replay_s", replay_s)
                .figure("records_per_s", found.replayed as f64 / replay_s),
        );
    }
    Ok(())
}

/// Leases and completes this many tasks, a hundred at a time.
async fn finish(bench: &InProcess, tasks: usize) -> Result<()> {
    let worker: Arc<str> = Arc::from("w");
    let mut done = 0;
    while done < tasks {
        let grants = bench.handle().lease(bench.ask(&worker, 100), std::time::Duration::ZERO).await?;
        let mut reports = tokio::task::JoinSet::new();
        for grant in grants {
            let (bench, worker) = (bench.clone(), worker.clone());
            reports.spawn(async move { bench.complete(&worker, &grant).await });
            done += 1;
        }
        while let Some(reported) = reports.join_next().await {
            reported??;
        }
    }
    Ok(())
}
