//! The worker inside `lessor up`: the same code and protocol as a separate worker, except that the content store is in the
//! same process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use blobs::{Blobs, Tenant};
use credentials::Connector;
use credentials::in_process::Dialer;
use tokio::task::JoinHandle;
use wire::DEFAULT_SCOPE_NAME;
use worker::executors::{self, Backend, NETWORK_HOST, NETWORK_PROPERTY, Selected};
use worker::{LocalCas, Stopper, Work};

use super::Instances;
use super::embedded_dir;
use super::file::{Host, Worker};
use super::settings::{Settings, slots};
use super::worker_id;
use crate::data_dir::DataDir;

/// How long running actions may take after a stop signal; a second signal ends the wait.
const DRAIN_SECONDS: u64 = 30;

// A doc comment would replace the help text of `lessor up`.
#[derive(clap::Args)]
pub(crate) struct EmbeddedOptions {
    /// Where actions run: host, sandbox, or auto for the sandbox where it works
    #[arg(long, value_name = "BACKEND", default_value_t = Backend::Auto, value_parser = parse_backend)]
    backend: Backend,

    /// Let sandboxed actions use this machine's network if their platform has network=host
    #[arg(long)]
    allow_network: bool,

    /// Where actions run and their inputs are cached; not below the data directory [default: a directory in the user's
    /// cache directory]
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
}

fn parse_backend(text: &str) -> Result<Backend, String> {
    match text.parse()? {
        Backend::Docker => Err("containers need a worker of their own: start `lessor up --no-worker` and \
             `lessor worker daemon --backend docker`"
            .to_owned()),
        backend => Ok(backend),
    }
}

/// A worker whose backend is being tried.
pub(crate) struct Opening {
    settings: Settings,
    allow_network: bool,
    selected: JoinHandle<Result<Selected, worker::Error>>,
}

pub(crate) struct Embedded {
    stop: Stopper,
    running: JoinHandle<Result<(), worker::Error>>,
    /// The operator has stopped it.
    has_ended: bool,
    /// For the banner: where actions run, and why.
    pub notice: Option<String>,
}

impl Embedded {
    /// Begins to try the backend. The caller owns the data directory. The worker names the address in its requests, and
    /// connects by the dialer, without a socket.
    pub(crate) fn open(
        data: &DataDir,
        address: SocketAddr,
        in_process: Dialer,
        options: EmbeddedOptions,
    ) -> Result<Opening> {
        let url = format!("http://{}", reachable(address));
        let mut settings = Settings::of(Worker {
            worker_id: Some(worker_id::load_or_create(data.path(), "worker")?),
            server_url: url,
            max_concurrent_tasks: slots(),
            drain_timeout_seconds: DRAIN_SECONDS,
            backend: options.backend.to_string(),
            host: Host { work_dir: embedded_dir::choose(data.path(), options.work_dir)?, ..Host::default() },
            ..Worker::default()
        })?;
        settings.config.connector = Connector::in_process(in_process);
        settings.executor.hidden =
            vec![data.path().canonicalize().context("the data directory has no path")?];
        embedded_dir::remove_old(data.path());
        let executor = settings.executor.clone();
        let selected = tokio::spawn(async move { executors::select(&executor).await });
        Ok(Opening { settings, allow_network: options.allow_network, selected })
    }

    /// Resolves when the worker fails, with the reason. A worker that the operator stops has not failed: the server goes on
    /// without it.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        if !self.has_ended {
            let ended = (&mut self.running).await;
            self.has_ended = true;
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error.into(),
                Err(error) => return error.into(),
            }
            tracing::warn!(
                "the operator has stopped the worker of this process; actions wait for other workers"
            );
        }
        std::future::pending().await
    }

    /// Takes no more tasks, and resolves when the running ones are finished or released.
    pub(crate) async fn drain(self) {
        if self.has_ended {
            return;
        }
        self.stop.stop();
        match self.running.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the worker has ended"),
            Err(error) => tracing::error!(%error, "the worker has failed"),
        }
    }
}

impl Opening {
    /// Starts the worker once its backend is known. A backend that does not work is reported by [`Embedded::failed`].
    pub(crate) async fn start(self, content: Arc<dyn Blobs>, instances: Instances) -> Result<Embedded> {
        let Settings { mut config, executor, .. } = self.settings;
        let selected = self.selected.await?;
        let notice =
            selected.as_ref().ok().map(|selected| notice(executor.backend, selected, self.allow_network));
        // Plain processes have the machine's network anyway.
        let has_network = selected.as_ref().is_ok_and(|selected| selected.backend == Backend::Host);
        if has_network || self.allow_network {
            config.platform.insert(NETWORK_PROPERTY.to_owned(), NETWORK_HOST.to_owned());
        }
        let cas = Arc::new(LocalCas::new(content, Tenant::new(DEFAULT_SCOPE_NAME)?));
        let stop = Stopper::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move {
            let work = Work::open(&config, selected?.executor, cas).await?;
            instances.serve(config, Arc::new(work), stopped, true).await
        });
        Ok(Embedded { stop, running, has_ended: false, notice })
    }
}

/// Says where actions run and why, and what they may do.
fn notice(requested: Backend, selected: &Selected, allow_network: bool) -> String {
    let reason = match (&selected.no_sandbox, requested) {
        (Some(why), _) => format!("because there is no sandbox: {why}"),
        (None, Backend::Auto) => "because bubblewrap works here".to_owned(),
        (None, requested) => format!("as --backend {requested} says"),
    };
    if selected.backend == Backend::Host {
        return format!(
            "Actions run as plain processes with the rights and the network of this user (backend host, {reason})."
        );
    }
    let network = if allow_network {
        "Only actions whose platform has network=host use the network."
    } else {
        "They have no network: --allow-network lets those use it whose platform has network=host."
    };
    format!(
        "Actions run in a sandbox (backend {}, {reason}). {network} --backend host runs actions as plain processes.",
        selected.backend
    )
}

/// An address that the worker can connect to: loopback instead of the unspecified address.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        ip if !ip.is_unspecified() => address,
        ip if ip.is_ipv4() => SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, address.port())),
        _ => SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, address.port())),
    }
}
