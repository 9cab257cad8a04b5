//! What a worker adds to a command: actions that do nothing, beside a bare process and a bare sandbox, and an input tree
//! of many small files. Contents come from a real server in a process of its own.

mod action;
mod counted;
mod tree;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use blobs::Digest;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use worker::cas::{GrpcCas, GrpcCasOptions};
use worker::executors::{self, Backend, ExecutorOptions};
use worker::{ActionOptions, Actions, Cas};

use super::http::Server;
use super::report::{Line, Report};
use super::stage;
use super::stats::Spread;
use counted::Counted;

/// What both kinds of processes run.
const PROGRAM: &str = "/bin/true";
const WORKER_ID: &str = "bench";

#[derive(clap::Args)]
pub struct Options {
    /// Where commands run: host, sandbox, docker, or several with commas
    #[arg(long, value_delimiter = ',', default_value = "host,sandbox", value_name = "NAMES")]
    backends: Vec<Backend>,

    /// The image of containers
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// Actions that do nothing, one after the other
    #[arg(long, default_value_t = 300)]
    actions: usize,

    /// Actions at the same time, for the rate
    #[arg(long, default_value_t = 4)]
    slots: usize,

    /// Small files of the input tree
    #[arg(long, default_value_t = 10_000)]
    files: usize,
}

pub async fn run(options: &Options, below: &Path, report: &Report) -> Result<()> {
    let directory = stage::directory(below)?;
    let server = Server::start(&directory.path().join("data")).await?;
    let url = format!("http://{}", server.address());
    let cas = Arc::new(Counted::new(GrpcCas::new(&url, &GrpcCasOptions::default())?));
    for backend in &options.backends {
        let dir = directory.path().join(backend.name());
        let actions = Arc::new(open(*backend, options, &dir, cas.clone()).await?);
        let nothing = action::store(&*cas, &[PROGRAM], &[]).await?;
        report.line(no_ops(*backend, options, &dir, &actions, nothing).await?);
    }
    tree::run(options, &directory.path().join("tree"), &cas, report).await
}

async fn open(backend: Backend, options: &Options, dir: &Path, cas: Arc<dyn Cas>) -> Result<Actions> {
    let place = ActionOptions::below(std::path::absolute(dir)?);
    let mut how = ExecutorOptions::new(backend, WORKER_ID, &place.work_dir);
    how.docker.image = options.image.clone();
    let executor = executors::open(&how).await?;
    Ok(Actions::open(WORKER_ID, &place, executor, cas).await?)
}

/// Bare processes and actions take turns, so that what else the machine does meets both.
async fn no_ops(
    backend: Backend,
    options: &Options,
    dir: &Path,
    actions: &Arc<Actions>,
    action: Digest,
) -> Result<Line> {
    let inside = dir.join("bare");
    std::fs::create_dir_all(&inside)?;
    let (mut bare, mut whole) = (Vec::new(), Vec::new());
    once(actions, action).await?;
    for _ in 0..options.actions {
        bare.push(bare_process(backend, &inside).await?);
        whole.push(once(actions, action).await?);
    }
    let rate = rate(options, actions, action).await?;
    let (bare, whole) = (Spread::of(bare), Spread::of(whole));
    let (bare_ms, whole_ms) = (bare.percentile_ms(50.0), whole.percentile_ms(50.0));
    Ok(Line::new("worker")
        .with("backend", backend.name())
        .with("actions", options.actions)
        .figure("bare_p50_ms", bare_ms)
        .figure("action_p50_ms", whole_ms)
        .figure("action_p99_ms", whole.percentile_ms(99.0))
        .figure("overhead_p50_ms", whole_ms - bare_ms)
        .figure("times_bare", whole_ms / bare_ms)
        .with("slots", options.slots)
        .figure("actions_per_s", rate))
}

async fn once(actions: &Actions, action: Digest) -> Result<Duration> {
    let began = Instant::now();
    let result = actions.run("", action, &CancellationToken::new(), || {}).await?;
    if result.exit_code != 0 {
        bail!("an action that does nothing ended with {}", result.exit_code);
    }
    Ok(began.elapsed())
}

async fn rate(options: &Options, actions: &Arc<Actions>, action: Digest) -> Result<f64> {
    let began = Instant::now();
    let mut crowd = JoinSet::new();
    let each = options.actions.div_ceil(options.slots.max(1));
    for _ in 0..options.slots {
        let actions = actions.clone();
        crowd.spawn(async move {
            for _ in 0..each {
                once(&actions, action).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = crowd.join_next().await {
        done??;
    }
    Ok((each * options.slots) as f64 / began.elapsed().as_secs_f64())
}

/// The same program without a worker: a plain process, or bubblewrap with the usual arguments. There is nothing like it
/// for containers.
async fn bare_process(backend: Backend, inside: &Path) -> Result<Duration> {
    let mut command = match backend {
        Backend::Sandbox | Backend::Auto => {
            let mut command = Command::new("bwrap");
            command.args(["--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr"]);
            command.args(["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"]);
            command.args(["--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev"]);
            command
                .args(["--tmpfs", "/tmp", "--bind"])
                .arg(inside)
                .args(["/build", "--chdir", "/build", PROGRAM]);
            command
        }
        Backend::Host | Backend::Docker => Command::new(PROGRAM),
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let status = tokio::task::block_in_place(|| command.status()).context("cannot start a bare process")?;
    if !status.success() {
        bail!("a bare process ended with {status}");
    }
    Ok(began.elapsed())
}
