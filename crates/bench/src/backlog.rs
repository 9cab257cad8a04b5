//! Measures a backlog: the memory of each waiting task, and the cost of a lease with many waiting tasks.
//!
//! Memory is the growth of the process while the tasks are submitted, after a warm-up that fills the buffers of any
//! start. Each size runs in its own process, so that no measurement reuses memory of another. No snapshot is taken
//! meanwhile; `snapshot` measures its cost.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use authority::command::{LeaseTasks, SubmitTask};
use authority::{Command, State, Time};

use super::in_process::InProcess;
use super::report::{Line, Report};
use super::{fixture, process};

/// Tasks submitted in one request.
const BATCH: usize = 1_000;
/// Batches in flight at one time, so that they share syncs.
const BATCHES_IN_FLIGHT: usize = 8;
/// Tasks submitted before memory is measured.
const WARM_UP_TASKS: usize = BATCH * BATCHES_IN_FLIGHT;
/// A worker that has leased this many tasks submits as many, so that the length of the backlog stays the same.
const REFILL: usize = 100;
/// Leases decided and applied in memory, without a disk.
const PURE_LEASES: usize = 20_000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of waiting tasks
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000,10000000")]
    tasks: Vec<usize>,

    /// Size of a task's payload
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    payload: usize,

    /// Seconds to count durable leases
    #[arg(long, default_value_t = 3)]
    seconds: u64,
}

pub(crate) async fn run(options: &Options, below: &Path, report: &Report) -> Result<()> {
    if let [tasks] = options.tasks[..] {
        return measure(tasks, options, below, report).await;
    }
    for tasks in &options.tasks {
        let ended = tokio::process::Command::new(std::env::current_exe()?)
            .args(["bench", "backlog", "--tasks", &tasks.to_string()])
            .args(["--payload", &options.payload.to_string(), "--seconds", &options.seconds.to_string()])
            .args(report.is_json().then_some("--json"))
            .arg("--dir")
            .arg(below)
            .status()
            .await?;
        anyhow::ensure!(ended.success(), "the measurement with {tasks} tasks failed");
    }
    Ok(())
}

async fn measure(tasks: usize, options: &Options, below: &Path, report: &Report) -> Result<()> {
    report.note(&format!("{tasks} waiting tasks …"));
    let directory = fixture::directory(below)?;
    let running = fixture::start(&directory.path().join("data"), u64::MAX).await?;
    let bench = InProcess::new(running.handle.clone(), options.payload);
    fill(&bench, WARM_UP_TASKS).await?;
    let before = process::rss_bytes();
    fill(&bench, tasks).await?;
    let bytes_per_task = process::rss_bytes().saturating_sub(before) as f64 / tasks as f64;
    let leases = durable_leases(&bench, Duration::from_secs(options.seconds)).await?;
    running.stop().await?;
    let pure = pure_lease_us(tasks, &bench);
    report.line(
        Line::new("backlog")
            .with("tasks", tasks)
            .with("payload_bytes", options.payload)
            .figure("bytes_per_task", bytes_per_task)
            .figure("bytes_per_task_beyond_payload", bytes_per_task - options.payload as f64)
            .figure("decide_apply_us", pure)
            .figure("leases_per_s", leases),
    );
    Ok(())
}

pub(crate) async fn fill(bench: &InProcess, tasks: usize) -> Result<()> {
    let mut in_flight = tokio::task::JoinSet::new();
    for begin in (0..tasks).step_by(BATCH) {
        let batch: Vec<SubmitTask> =
            (begin..tasks.min(begin + BATCH)).map(|_| with_own_payload(bench)).collect();
        let handle = bench.handle().clone();
        in_flight.spawn(async move { handle.submit_batch(batch).await });
        if in_flight.len() >= BATCHES_IN_FLIGHT
            && let Some(done) = in_flight.join_next().await
        {
            done??;
        }
    }
    while let Some(done) = in_flight.join_next().await {
        done??;
    }
    Ok(())
}

/// Real tasks do not share their payloads in memory.
fn with_own_payload(bench: &InProcess) -> SubmitTask {
    let task = bench.task();
    SubmitTask { payload: Arc::from(&*task.payload), ..task }
}

/// Durable leases per second by 64 workers that lease one task at a time.
async fn durable_leases(bench: &InProcess, time: Duration) -> Result<f64> {
    const WORKERS: usize = 64;
    let mut load = tokio::task::JoinSet::new();
    let began = Instant::now();
    for n in 0..WORKERS {
        let bench = bench.clone();
        load.spawn(async move {
            let name: Arc<str> = format!("w{n}").into();
            let mut leases = 0;
            while began.elapsed() < time {
                let grants = bench.handle().lease(bench.ask(&name, 1), Duration::ZERO).await?;
                anyhow::ensure!(!grants.is_empty(), "the backlog ran out");
                leases += 1;
                if leases % REFILL == 0 {
                    fill(&bench, REFILL).await?;
                }
            }
            anyhow::Ok(leases)
        });
    }
    let mut leases = 0;
    while let Some(done) = load.join_next().await {
        leases += done??;
    }
    Ok(leases as f64 / began.elapsed().as_secs_f64())
}

/// Microseconds to decide and apply one lease in memory.
fn pure_lease_us(tasks: usize, bench: &InProcess) -> f64 {
    let mut state = State::new();
    for _ in 0..tasks {
        decide(&mut state, Command::SubmitTask(Box::new(bench.task())));
    }
    let worker: Arc<str> = Arc::from("w");
    let ask: LeaseTasks = bench.ask(&worker, 1);
    state.index_worker_profile(&ask.scope, &ask.queues, &ask.properties);
    let leases = PURE_LEASES.min(tasks);
    let began = Instant::now();
    for _ in 0..leases {
        decide(&mut state, Command::LeaseTasks(ask.clone()));
    }
    began.elapsed().as_secs_f64() * 1e6 / leases as f64
}

fn decide(state: &mut State, command: Command) {
    let decision = state.decide(&command, Time(1));
    for event in &decision.events {
        state.apply(Time(1), event).expect("a decided event applies");
    }
}
