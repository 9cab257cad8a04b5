//! Submit, lease, complete, all durable: n clients that submit and as many that work.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use serde_json::json;
use tokio::task::JoinSet;

use super::http::{Client, Server};
use super::in_process::InProcess;
use super::report::{Line, Report};
use super::{Transport, fdatasync, noop, stage};

/// Before the count begins, so that connections, caches and the queue have settled.
const WARM_UP: Duration = Duration::from_millis(500);
/// For each of the limits beside it.
const LIMIT_TIME: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
pub struct Options {
    /// How many clients submit, and how many work
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    clients: Vec<usize>,

    #[arg(long, value_enum, value_delimiter = ',', default_value = "in-process,http")]
    transport: Vec<Transport>,

    /// Seconds for each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,

    /// Size of a task's payload
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    payload: usize,
}

pub async fn run(options: &Options, below: &Path, report: &Report) -> Result<()> {
    let time = Duration::from_secs(options.seconds);
    for &transport in &options.transport {
        for &clients in &options.clients {
            let directory = stage::directory(below)?;
            report.note(&format!("{} clients, {}, {} s …", clients, transport.name(), options.seconds));
            let syncs = fdatasync::measure(directory.path(), LIMIT_TIME)?;
            let data = directory.path().join("data");
            let line = Line::new("cycle").with("transport", transport.name()).with("clients", clients);
            let line = match transport {
                Transport::InProcess => {
                    let running = stage::start(stage::options(&data)).await?;
                    let bench = InProcess::new(running.handle.clone(), options.payload);
                    let cycles = in_process(&bench, clients, time).await?;
                    running.stop().await?;
                    line.figure("cycles_per_s", cycles)
                        .figure("fdatasync_per_s", syncs.per_s)
                        .figure("cycles_per_fdatasync", cycles / syncs.per_s)
                }
                Transport::Http => {
                    let server = Server::start(&data).await?;
                    let noop = noop::per_s(&server, clients, LIMIT_TIME).await?;
                    let cycles = http(&server, clients, options.payload, time).await?;
                    line.figure("cycles_per_s", cycles)
                        .figure("fdatasync_per_s", syncs.per_s)
                        .figure("noop_per_s", noop)
                        .figure("share_of_a_third_of_noop", cycles / (noop / 3.0))
                }
            };
            report.line(line);
        }
    }
    Ok(())
}

/// Counts what a crowd does between the end of its warm-up and the end of the time.
struct Counter {
    done: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Counter {
    fn new() -> Counter {
        Counter { done: Arc::new(AtomicU64::new(0)), stop: Arc::new(AtomicBool::new(false)) }
    }

    /// Lets the crowd run; a member that fails ends the measurement.
    async fn measure(self, mut crowd: JoinSet<Result<()>>, time: Duration) -> Result<f64> {
        tokio::time::sleep(WARM_UP).await;
        let (began, before) = (Instant::now(), self.done.load(Ordering::Relaxed));
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            ended = crowd.join_next() => ended.context("nobody to measure")???,
        }
        let per_s = (self.done.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64();
        self.stop.store(true, Ordering::Relaxed);
        crowd.shutdown().await;
        Ok(per_s)
    }
}

async fn in_process(bench: &InProcess, clients: usize, time: Duration) -> Result<f64> {
    let counter = Counter::new();
    let mut crowd = JoinSet::new();
    for n in 0..clients {
        let (client, stop) = (bench.clone(), counter.stop.clone());
        crowd.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                client.submit().await?;
            }
            std::future::pending().await
        });
        let (worker, done) = (bench.clone(), counter.done.clone());
        crowd.spawn(async move {
            let name: Arc<str> = format!("w{n}").into();
            loop {
                let grant = worker.lease(&name).await?;
                worker.complete(&name, &grant).await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    counter.measure(crowd, time).await
}

async fn http(server: &Server, clients: usize, payload_bytes: usize, time: Duration) -> Result<f64> {
    let counter = Counter::new();
    let mut crowd = JoinSet::new();
    let payload = "1".repeat(payload_bytes.saturating_sub(2));
    let task = Bytes::from(json!({"queue": "bench", "payload": payload}).to_string());
    for n in 0..clients {
        let (mut client, stop, task) = (server.connect().await?, counter.stop.clone(), task.clone());
        crowd.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                client.post("/v1/tasks", task.clone()).await?;
            }
            std::future::pending().await
        });
        let (mut worker, done) = (server.connect().await?, counter.done.clone());
        crowd.spawn(async move {
            let ask = json!({"workerId": format!("w{n}"), "queues": ["bench"], "waitMs": 30_000}).to_string();
            let report = Bytes::from(json!({"workerId": format!("w{n}"), "result": 1}).to_string());
            loop {
                work(&mut worker, ask.clone().into(), report.clone()).await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    counter.measure(crowd, time).await
}

/// One lease and its completion.
pub async fn work(worker: &mut Client, ask: Bytes, report: Bytes) -> Result<()> {
    let leases = worker.post("/v1/leases", ask).await?;
    let lease = leases["leases"][0]["leaseId"].as_str().context("no task came in time")?;
    let told = worker.post(&format!("/v1/leases/{lease}/complete"), report).await?;
    anyhow::ensure!(told["verdict"] == "COMMITTED", "a completion was answered {told}");
    Ok(())
}
