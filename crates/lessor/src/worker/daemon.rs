//! `lessor worker daemon`: a worker in a process of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use lessor_sdk::protocol::stop_on_signals;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tracing::level_filters::LevelFilter;
use worker::executors::{self, Backend, Check, ExecutorOptions};
use worker::{Agent, Cas, Executor, Protocol, Stopper, Work};

use super::instance_watch;
use super::instances::Instances;
use super::metrics::{self, Metrics};
use super::settings::{Flags, Settings};
use crate::{address, logging};

/// How long the check waits for the content store; the worker itself waits longer.
const CHECK_PATIENCE: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
#[command(
    after_help = "With the backend host, commands run with this worker's own rights and see the machine as it does: \
    give it a machine, a container or a user of its own. On SIGTERM or Ctrl-C it takes no more work, waits for what \
    runs, and gives the rest back; a second one stops it at once. A flag wins over the file.\n\n\
    Exit codes: 0 stopped, 1 could not start or was refused, 2 the file is not right."
)]
pub(super) struct Options {
    #[command(flatten)]
    flags: Flags,

    /// Where to show figures for Prometheus at /metrics; port 0 takes a free one and logs it [default: nowhere]
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    metrics: Option<SocketAddr>,
}

pub(super) fn run(options: Options) -> Result<()> {
    let _log = logging::start(LevelFilter::INFO);
    let settings = Settings::of(options.flags.worker()?)?.with_credentials()?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(serve(settings, options.metrics))
}

async fn serve(settings: Settings, metrics_at: Option<SocketAddr>) -> Result<()> {
    let stop = Stopper::new();
    let signals = tokio::spawn(stop_on_signals(stop.clone())?);
    tokio::select! {
        () = log_checks(&settings) => {}
        // A stop signal need not wait for the checks.
        () = stop.stop_requested() => {}
    }
    let mut executor: Arc<dyn Executor> = executors::open(&settings.executor).await?;
    let mut cas: Arc<dyn Cas> = settings.cas(None)?;
    // Ends with this function.
    let mut beside = JoinSet::new();
    if let Some(address) = metrics_at {
        let metrics = Metrics::new(settings.config.max_concurrent_tasks)?;
        (executor, cas) = (metrics.executor(executor), metrics.cas(cas));
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot show metrics on {address}"))?;
        tracing::info!(address = %listener.local_addr()?, "metrics are shown");
        beside.spawn(metrics::serve(listener, metrics));
    }
    let Settings { config, credentials, executor: ExecutorOptions { backend, .. }, .. } = settings;
    let work = Arc::new(Work::open(&config, executor, cas).await?);
    let slots = config.max_concurrent_tasks;
    tracing::info!(id = config.worker_id, slots, %backend, server = config.server_url, "working");
    let ended = if config.workspace.is_none() && config.protocol == Protocol::Stream {
        let (to, instances) = Instances::channel();
        let url = config.server_url.clone();
        beside.spawn(async move {
            if let Err(error) = instance_watch::watch(&url, credentials, to).await {
                tracing::warn!(error = format!("{error:#}"), "only the unnamed instance is served");
            }
        });
        instances.serve(config, work, stop, false).await
    } else {
        Agent::serve(config, work, stop).await
    };
    signals.abort();
    ended?;
    tracing::info!("stopped; what was not done was given back");
    Ok(())
}

/// Logs the checks of `lessor worker check` (S3-61). Only an unusable backend, which `executors::open` reports, prevents
/// the start: every other problem may be temporary.
async fn log_checks(settings: &Settings) {
    let cas = match settings.cas(Some(CHECK_PATIENCE)) {
        Ok(cas) => cas,
        Err(error) => return tracing::warn!("the content store: {error:#}"),
    };
    for Check { name, result } in worker::check::surroundings(&settings.config, &*cas).await {
        match result {
            Ok(found) => tracing::info!("{name}: {found}"),
            Err(why) => tracing::warn!("{name}: {why}"),
        }
    }
    if settings.executor.backend == Backend::Host {
        let sandbox = ExecutorOptions { backend: Backend::Sandbox, ..settings.executor.clone() };
        if executors::check(&sandbox).await.iter().all(|check| check.result.is_ok()) {
            tracing::info!(
                "commands run with this worker's own rights; --backend sandbox works here and contains them"
            );
        }
    }
}
