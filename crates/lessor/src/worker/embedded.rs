//! The worker inside `lessor up`: the same code and protocol as a separate worker, except that the content store is in the
//! same process.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use blobs::{Blobs, Tenant};
use tokio::task::JoinHandle;
use wire::DEFAULT_SCOPE_NAME;
use worker::{LocalCas, Stopper, Work, executors};

use super::Instances;
use super::file::{Host, Worker};
use super::settings::{Settings, slots};
use super::worker_id;
use crate::data_dir::DataDir;

/// The work directory, below the data directory.
const DIRECTORY: &str = "worker";
/// How long running actions may take after a stop signal; a second signal ends the wait.
const DRAIN_SECONDS: u64 = 30;

pub(crate) struct Embedded {
    stop: Stopper,
    running: JoinHandle<Result<(), worker::Error>>,
}

impl Embedded {
    pub(crate) fn start(
        data: &DataDir,
        address: SocketAddr,
        content: Arc<dyn Blobs>,
        instances: Instances,
    ) -> Result<Embedded> {
        let url = format!("http://{}", reachable(address));
        let settings = Settings::of(Worker {
            worker_id: Some(worker_id::load_or_create(data.path(), "worker")?),
            server_url: url,
            max_concurrent_tasks: slots(),
            drain_timeout_seconds: DRAIN_SECONDS,
            host: Host { work_dir: data.path().join(DIRECTORY), ..Host::default() },
            ..Worker::default()
        })?;
        let cas = Arc::new(LocalCas::new(content, Tenant::new(DEFAULT_SCOPE_NAME)?));
        let stop = Stopper::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move {
            let Settings { config, executor, .. } = settings;
            let work = Work::open(&config, executors::open(&executor).await?, cas).await?;
            instances.serve(config, Arc::new(work), stopped).await
        });
        Ok(Embedded { stop, running })
    }

    /// Resolves when the worker ends without a stop, with the reason.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        match (&mut self.running).await {
            Ok(Ok(())) => anyhow::anyhow!("it has ended"),
            Ok(Err(error)) => error.into(),
            Err(error) => error.into(),
        }
    }

    /// Takes no more tasks, and resolves when the running ones are finished or released.
    pub(crate) async fn drain(self) {
        self.stop.stop();
        match self.running.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the worker has ended"),
            Err(error) => tracing::error!(%error, "the worker has failed"),
        }
    }
}

/// An address that the worker can connect to: loopback instead of the unspecified address.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        ip if !ip.is_unspecified() => address,
        ip if ip.is_ipv4() => SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, address.port())),
        _ => SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, address.port())),
    }
}
