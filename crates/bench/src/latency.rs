//! Measures the time from a submit until an idle worker has the task.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use serde_json::json;

use super::cycle::completion_path;
use super::http::{Server, noop_p50_ms};
use super::percentiles::Percentiles;
use super::report::{Line, Report};
use super::{fdatasync, fixture};

const LIMIT_TIME: Duration = Duration::from_secs(2);
const LIMIT_REQUESTS: usize = 2_000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of tasks, submitted one after the other
    #[arg(long, default_value_t = 2_000)]
    tasks: usize,
}

pub(crate) async fn run(options: &Options, below: &Path, report: &Report) -> Result<()> {
    let directory = fixture::directory(below)?;
    let syncs = fdatasync::measure(directory.path(), LIMIT_TIME)?;
    let server = Server::start(&directory.path().join("data")).await?;
    let noop_p50_ms = noop_p50_ms(&server, LIMIT_REQUESTS).await?;
    let (mut client, mut worker, mut observer) =
        (server.connect().await?, server.connect().await?, server.connect().await?);
    let task = Bytes::from(json!({"queue": "bench", "payload": "hello"}).to_string());
    let ask = Bytes::from(json!({"workerId": "w", "queues": ["bench"], "waitMs": 30_000}).to_string());
    let done = Bytes::from(json!({"workerId": "w", "result": 1}).to_string());
    let (arrived_sender, mut arrived) = tokio::sync::mpsc::channel(1);
    let tasks = options.tasks;
    let working = tokio::spawn(async move {
        for _ in 0..tasks {
            let leases = worker.post("/v1/leases", ask.clone()).await?;
            arrived_sender.send(Instant::now()).await?;
            worker.post(&completion_path(&leases)?, done.clone()).await?;
        }
        anyhow::Ok(())
    });
    let mut times = Vec::with_capacity(tasks);
    for _ in 0..tasks {
        until_idle(&mut observer).await?;
        let began = Instant::now();
        client.post("/v1/tasks", task.clone()).await?;
        let Some(at) = arrived.recv().await else { break };
        times.push(at.saturating_duration_since(began));
    }
    working.await??;
    let percentiles = Percentiles::of(times);
    let limit_ms = syncs.p50_ms + 2.0 * noop_p50_ms;
    report.line(
        Line::new("latency")
            .with("transport", "http")
            .with("tasks", tasks)
            .figure("p50_ms", percentiles.at_ms(50.0))
            .figure("p99_ms", percentiles.at_ms(99.0))
            .figure("fdatasync_p50_ms", syncs.p50_ms)
            .figure("noop_p50_ms", noop_p50_ms)
            .figure("times_the_limit", percentiles.at_ms(50.0) / limit_ms),
    );
    Ok(())
}

/// Returns once the worker waits in its poll.
async fn until_idle(observer: &mut super::http::Client) -> Result<()> {
    loop {
        let ready: serde_json::Value = serde_json::from_slice(&observer.get("/readyz").await?)?;
        if ready["polls"].as_u64().context("readiness does not count polls")? > 0 {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
}
