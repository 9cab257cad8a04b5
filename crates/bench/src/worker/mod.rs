//! Measures the overhead of a worker: no-op actions beside a bare process and a bare sandbox, and an input tree of many
//! small files. Content comes from a real server in its own process.

mod action;
mod bare_process;
mod tree;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use blobs::Digest;
use reapi_client::{Client, ObservedCas, Traffic};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use worker::executors::{self, Backend, ExecutorOptions};
use worker::{ActionOptions, Actions, Cas};

use super::fixture;
use super::http::Server;
use super::percentiles::Percentiles;
use super::report::{Line, Report};
pub(crate) use bare_process::BareProcess;

/// The no-op program of actions and bare processes.
const PROGRAM: &str = "/bin/true";
const WORKER_ID: &str = "bench";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where commands run: host, sandbox, docker, or several with commas
    #[arg(long, value_delimiter = ',', default_value = "host,sandbox", value_name = "NAMES")]
    backends: Vec<Backend>,

    /// The image of containers
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// Number of no-op actions, one after the other
    #[arg(long, default_value_t = 300)]
    actions: usize,

    /// Concurrent actions, for the rate
    #[arg(long, default_value_t = 4)]
    slots: usize,

    /// Number of small files in the input tree
    #[arg(long, default_value_t = 10_000)]
    files: usize,
}

pub(crate) async fn run(options: &Options, below: &Path, report: &Report) -> Result<()> {
    let directory = fixture::directory(below)?;
    let server = Server::start(&directory.path().join("data")).await?;
    let url = server.url().to_string();
    let downloads = Arc::new(Downloads::default());
    let (inner, counted) =
        (Arc::new(Client::new(&url, &reapi_client::Options::default())?), downloads.clone());
    let observe = move |traffic| {
        if let Traffic::DownloadedBytes(bytes) = traffic {
            counted.bytes.fetch_add(bytes, Ordering::Relaxed);
            counted.calls.fetch_add(1, Ordering::Relaxed);
        }
    };
    let cas: Arc<dyn Cas> = Arc::new(ObservedCas { inner, observe });
    for backend in &options.backends {
        let dir = directory.path().join(backend.name());
        let actions = Arc::new(open(*backend, options, &dir, cas.clone()).await?);
        let nothing = action::store(&*cas, &[PROGRAM], &[]).await?;
        report.line(no_ops(*backend, options, &dir, &actions, nothing).await?);
    }
    tree::run(options, &directory.path().join("tree"), &cas, &downloads, report).await
}

/// The downloads from the content store so far.
#[derive(Default)]
struct Downloads {
    bytes: AtomicU64,
    calls: AtomicU64,
}

async fn open(backend: Backend, options: &Options, dir: &Path, cas: Arc<dyn Cas>) -> Result<Actions> {
    let paths = ActionOptions::below(std::path::absolute(dir)?);
    let mut how = ExecutorOptions::new(backend, WORKER_ID, &paths.work_dir);
    how.docker.image = options.image.clone();
    let executor = executors::open(&how).await?;
    Ok(Actions::open(WORKER_ID, &paths, executor, cas).await?)
}

/// Bare processes and actions take turns, so that other load on the machine affects both.
async fn no_ops(
    backend: Backend,
    options: &Options,
    dir: &Path,
    actions: &Arc<Actions>,
    action: Digest,
) -> Result<Line> {
    let bare = Arc::new(BareProcess::open(backend, dir)?);
    let (mut alone, mut least, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    once(actions, action).await?;
    for _ in 0..options.actions {
        alone.push(bare.run()?);
        bare.reap();
        whole.push(attempt(actions, action).await?);
        least.extend(bare.run_in_minimal_sandbox()?);
        bare.reap();
    }
    let own = bare.clone();
    let bare_per_s = rate(options, move || std::future::ready(own.run())).await?;
    bare.reap();
    let own = actions.clone();
    let actions_per_s = rate(options, move || {
        let actions = own.clone();
        async move { once(&actions, action).await }
    })
    .await?;
    let has_least = !least.is_empty();
    let [alone, least, whole] = [alone, least, whole].map(Percentiles::of);
    let (bare_ms, whole_ms) = (alone.at_ms(50.0), whole.at_ms(50.0));
    let mut line = Line::new("worker")
        .with("backend", backend.name())
        .with("actions", options.actions)
        .figure("bare_p50_ms", bare_ms);
    if has_least {
        line = line.figure("least_bare_p50_ms", least.at_ms(50.0));
    }
    Ok(line
        .figure("action_p50_ms", whole_ms)
        .figure("action_p99_ms", whole.at_ms(99.0))
        .figure("overhead_p50_ms", whole_ms - bare_ms)
        .figure("times_bare", whole_ms / bare_ms)
        .with("slots", options.slots)
        .figure("bare_per_s", bare_per_s)
        .figure("actions_per_s", actions_per_s))
}

/// As a worker's agent has it done: by a task of its own.
async fn attempt(actions: &Arc<Actions>, action: Digest) -> Result<Duration> {
    let actions = actions.clone();
    tokio::spawn(async move { once(&actions, action).await }).await?
}

async fn once(actions: &Actions, action: Digest) -> Result<Duration> {
    let began = Instant::now();
    let result = actions.run("", action, &CancellationToken::new(), || {}).await?;
    if result.exit_code != 0 {
        bail!("an action that does nothing ended with {}", result.exit_code);
    }
    Ok(began.elapsed())
}

/// Operations per second with one operation per slot at a time.
async fn rate<F, W>(options: &Options, work: F) -> Result<f64>
where
    F: Fn() -> W + Clone + Send + 'static,
    W: Future<Output = Result<Duration>> + Send,
{
    let began = Instant::now();
    let mut load = JoinSet::new();
    let each = options.actions.div_ceil(options.slots.max(1));
    for _ in 0..options.slots {
        let work = work.clone();
        load.spawn(async move {
            for _ in 0..each {
                work().await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = load.join_next().await {
        done??;
    }
    Ok((each * options.slots) as f64 / began.elapsed().as_secs_f64())
}
