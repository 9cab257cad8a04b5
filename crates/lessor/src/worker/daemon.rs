//! `lessor worker daemon`: a worker in a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use worker::cas::{GrpcCas, GrpcCasOptions};
use worker::executors::Host;
use worker::{ActionOptions, Agent, Cas, Config, Executor, Stopper};

use super::metrics::{self, Metrics};
use super::{platform, slots};
use crate::logging;

#[derive(clap::Args)]
#[command(
    after_help = "Commands run with this worker's own rights and see the machine as it does: give it a machine,\n\
    a container or a user of its own. On SIGTERM or Ctrl-C it takes no more work, waits for what runs, and gives the\n\
    rest back; a second one stops it at once."
)]
pub struct Options {
    /// The coordinator
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8980", env = "LESSOR_URL")]
    server_url: String,

    /// The content store [default: the coordinator's]
    #[arg(long, value_name = "URL")]
    cas_url: Option<String>,

    /// The worker's name, the same at every start [default: the host's name]
    #[arg(long, value_name = "NAME")]
    id: Option<String>,

    /// Where actions run and their inputs are cached
    #[arg(long, value_name = "DIR", default_value = ".lessor-worker")]
    work_dir: PathBuf,

    /// Actions at one time [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    slots: Option<u16>,

    /// Something that this worker offers, beside its OSFamily and ISA; again for more
    #[arg(long = "platform", value_name = "NAME=VALUE", value_parser = pair)]
    platform: Vec<(String, String)>,

    /// The instance that it works for [default: that of clients which name none]
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,

    /// Where to show figures for Prometheus at /metrics; port 0 takes a free one and logs it [default: nowhere]
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,

    /// How long running actions may take once it is told to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    drain_seconds: u64,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be NAME=VALUE".to_owned()),
    }
}

pub fn run(options: Options) -> Result<()> {
    let _log = logging::start("info");
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(serve(options))
}

async fn serve(options: Options) -> Result<()> {
    let id = options.id.unwrap_or_else(host_name);
    let cas_url = options.cas_url.unwrap_or_else(|| options.server_url.clone());
    let cas = Arc::new(GrpcCas::new(&cas_url, &GrpcCasOptions::default())?);
    let work_dir = std::path::absolute(&options.work_dir).context("the work directory has no path")?;
    let actions = ActionOptions { allow_absolute_symlinks: true, ..ActionOptions::below(work_dir) };
    let mut platform = platform();
    platform.extend(options.platform);
    let config = Config {
        workspace: options.instance,
        max_concurrent_tasks: options.slots.map_or_else(slots, usize::from),
        platform,
        drain_timeout: Duration::from_secs(options.drain_seconds),
        ..Config::new(options.server_url, id.clone(), actions)
    };
    tracing::info!(id, slots = config.max_concurrent_tasks, server = config.server_url, "working");
    let mut host: Arc<dyn Executor> = Arc::new(Host::new(Host::DEFAULT_ENV_ALLOW));
    let mut cas: Arc<dyn Cas> = cas;
    // Ends with this function.
    let mut beside = JoinSet::new();
    if let Some(address) = options.metrics {
        let metrics = Metrics::new(config.max_concurrent_tasks)?;
        (host, cas) = (metrics.executor(host), metrics.cas(cas));
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot show metrics on {address}"))?;
        tracing::info!(address = %listener.local_addr()?, "metrics are shown");
        beside.spawn(metrics::serve(listener, metrics));
    }
    let stop = Stopper::new();
    let told = tokio::spawn(stop_on_signals(stop.clone())?);
    let ended = Agent::run(config, host, cas, stop).await;
    told.abort();
    ended?;
    tracing::info!("stopped; what was not done was given back");
    Ok(())
}

fn stop_on_signals(stop: Stopper) -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            stop.stop();
        }
    })
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "worker".to_owned() } else { name }
}
