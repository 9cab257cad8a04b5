//! Runs a server from its start to its end, for `lessor up` and `lessor serve`.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use authority::command::{ConfigureAnswer, ConfigureQueue};
use authority::{QueueConfig, QueueKey};
use credentials::in_process;
use ledger::ClusterId;
use server::audit_trail::{self, AuditTrail};
use server::reapi::ActionCacheWriter;
use server::{RedisOptions, RedisStreams};
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::banner::Execution;
use crate::config::{Config, LedgerBackend, Redis};
use crate::ledger_backend::Backend;
use crate::node::{Joining, WhyLeave};
use crate::replacement::{Predecessor, Replaceable};
use crate::server_coordinator::Coordinator;
use crate::stop_signals::StopSignals;
use crate::worker::{Embedded, EmbeddedOptions, Instances};
use crate::{admin_key, banner, content, machine};

/// Connections that may wait to be accepted: after a restart every worker comes back at once.
const BACKLOG: u32 = 4_096;
/// Longest time between the loss of the name and the loss of the socket to another process.
const MAX_REPLACING: Duration = Duration::from_millis(500);

/// Where the server can be reached, and how.
pub(crate) struct Address {
    pub listening: SocketAddr,
    pub is_tls: bool,
}

impl Address {
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.listening)
    }
}

pub(crate) struct Start {
    /// Whether a missing or empty data directory is initialized.
    pub may_create: bool,
    pub drop_unverified_tail: bool,
    /// Queues whose configuration is replaced at every start.
    pub queues: Vec<(QueueKey, QueueConfig)>,
    /// How this process runs actions, if it does.
    pub worker: Option<EmbeddedOptions>,
    /// Whether it may listen beyond loopback without authentication.
    pub insecure: bool,
    /// Whether it replaces the process that runs with the same data directory.
    pub replaces: bool,
}

/// Serves until a signal says to stop, or the ledger or the worker of this process fails.
pub(crate) fn run(config: Config, start: Start) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(serve(config, start))
}

async fn serve(config: Config, start: Start) -> Result<()> {
    let connections = machine::connections();
    let max_linger = match config.ledger.backend {
        LedgerBackend::File => Duration::ZERO,
        // The other nodes serve meanwhile.
        LedgerBackend::Postgres => Duration::from_secs(config.cluster.drain_s),
    };
    let max_connections = connections.from_clients;
    let limits = server::Limits { max_connections, max_linger, ..server::Limits::default() };
    let warning = config.check_access(start.insecure, start.worker.is_some())?;
    let (issuers, certificates) = (config.auth.issuers()?, config.auth.certificates()?);
    let tls = config.server.tls.files().map(server::Tls::load).transpose();
    let tls = tls.context("TLS cannot be served")?;
    let (backend, config, start) = tokio::task::spawn_blocking(move || {
        Backend::prepare(&config, &start).map(|found| (found, config, start))
    })
    .await??;
    let predecessor = match start.replaces {
        true => Predecessor::find(&config.data.dir)?,
        false => None,
    };
    let data = backend.open_data_dir(&config.data.dir, &start)?;
    let listener = match &predecessor {
        Some(predecessor) => take_socket(predecessor, config.server.address)?,
        None => listen(config.server.address)?,
    };
    let listening = listener.local_addr().context("the listening socket has no address")?;
    let address = Address { listening, is_tls: tls.is_some() };
    let execution = match (config.capabilities.exec_enabled, start.worker.is_some()) {
        (true, true) => Execution::Embedded,
        (true, false) => Execution::External,
        (false, _) => Execution::Disabled,
    };
    let metrics = server::Metrics::new(config.metrics.queues.clone());
    let (sender, instances) = start.worker.is_some().then(Instances::channel).unzip();
    let (content, cache_writer, stores) = content::open(&data, &config, &metrics, sender)?;
    // A damaged key is refused before anything changes. A new key is made after the ledger is created.
    let old_key = match backend.cluster_key() {
        Some(key) => Some(key),
        None => (!data.is_new).then(|| data.lease_key()).transpose()?,
    };
    let began = Instant::now();
    let path = data.path().to_owned();
    let audit = data.path().join(audit_trail::DIRECTORY);
    // A node starts a coordinator each time that it takes over.
    let start_options = {
        let (config, audit) = (config.clone(), audit.clone());
        let redis = redis_options(&config.redis, &metrics)?;
        move |ledger: ClusterId| {
            let mut options = coordinator_options(&config, cache_writer.clone());
            options.audit_head = audit_head(&audit);
            options.projections.extend(redis.clone().and_then(|redis| redis_streams(redis, ledger)));
            options
        }
    };
    // Its backend is tried while the ledger is replayed. Within the process it needs neither a certificate nor an API key,
    // and counts toward the limits of no tenant.
    let (dialer, connections_in_process) = start.worker.is_some().then(in_process::channel).unzip();
    let opening = start.worker.zip(dialer);
    let opening = opening.map(|(options, dialer)| Embedded::open(&data, listening, dialer, options));
    let opening = opening.transpose()?;
    let (mut coordinator, mut notices) = match backend {
        Backend::File(backend) => Coordinator::start_own(path, *backend, start_options).await?,
        Backend::Postgres(node) => {
            let metrics = metrics.clone();
            let joining = Joining {
                replaces: predecessor.is_some(),
                connections: Box::new(move || metrics.open_connections()),
            };
            Coordinator::join(*node, &config, joining, start_options).await?
        }
    };
    let report = coordinator::StartReport { took: began.elapsed(), ..coordinator.report().await? };
    configure(coordinator.handle(), start.queues).await?;
    if let Some(file) = &config.auth.admin_key_file {
        admin_key::from_file(coordinator.handle(), file).await?;
    }
    let blobs = content.blobs.clone();
    let key = old_key.map_or_else(|| data.lease_key(), Ok)?;
    let audit_trail = AuditTrail::start(audit, &key).context("cannot start the writer of the audit trail")?;
    let options = server::Options {
        scheduler: config.scheduler(),
        push: server::PushOptions {
            allow_private_targets: config.push.allow_private_targets,
            callback_url: config.push.callback_url.clone(),
            token_ttl: Duration::from_secs(config.push.token_ttl_seconds),
            max_connections: connections.to_push_targets,
            ..server::PushOptions::default()
        },
        metrics,
        content: Some(content),
        allowed_hosts: config.server.allowed_hosts.clone(),
        auth: config.auth.mode.into(),
        tenant_limits: config.limits.of_requests(),
        issuers,
        certificates,
        audit_trail: Some(audit_trail.clone()),
        ..server::Options::default()
    };
    let app = server::App::with_options(coordinator.handle().clone(), key, options);
    // Before anyone can know that the server runs, and stop it.
    let signals = StopSignals::listen()?;
    let _reloading = tls.clone().map(reload_on_hangup).transpose()?;
    if let Err(error) = data.write_listen(&listening.to_string()) {
        tracing::warn!(
            error = format!("{error:#}"),
            "could not write the listen address to the data directory; the server runs without it"
        );
    }
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
    let mut worker = match opening.zip(instances) {
        Some((opening, instances)) => Some(opening.start(blobs, instances).await?),
        None => None,
    };
    notices.extend(config.notice());
    notices.extend(worker.as_mut().and_then(|worker| worker.notice.take()));
    banner::print(&data, &address, (&report, &notices), execution);

    let replaceable =
        (limits.max_linger > Duration::ZERO).then(|| Replaceable::start(data.path(), &listener));
    let replaceable = replaceable.transpose().unwrap_or_else(|error| {
        tracing::warn!(%error, "this process cannot be replaced by another one while it runs");
        None
    });
    if let Some(predecessor) = predecessor {
        coordinator.take_name().await;
        if let Err(error) = predecessor.relieve() {
            tracing::warn!(%error, "the process that was to be replaced is gone");
        }
    }
    let listener = server::Listener { tcp: listener, tls, in_process: connections_in_process };
    let (leaving, departure) = (app.clone(), coordinator.departure());
    let mut worker_failed = None;
    let stop = async {
        tokio::select! {
            signal = signals.received(1) => tracing::info!(signal, "stopping; a second signal stops at once"),
            () = replaced(&replaceable) => {
                tracing::info!("another process serves on the same socket; leaving");
                leaving.give_socket_away();
            }
            why = departure.wanted() => {
                tracing::info!(?why, "leaving the cluster; two signals stop at once");
                // A process that replaces this one takes its name just before its socket.
                let is_replaced = why == WhyLeave::NameLost
                    && timeout(MAX_REPLACING, replaced(&replaceable)).await.is_ok();
                if is_replaced {
                    leaving.give_socket_away();
                }
            }
            error = failed(&mut worker) => {
                let error = error.context("the worker of this process has failed (--no-worker serves without one)");
                tracing::error!(error = format!("{error:#}"), "stopping");
                (worker, worker_failed) = (None, Some(error));
            }
        }
        leaving.leave();
        departure.begin();
        if let Some(worker) = worker {
            worker.drain().await;
        }
        if limits.max_linger.is_zero() {
            tracing::info!("no new connections; open requests are finished");
        } else {
            tracing::info!(
                at_most_s = limits.max_linger.as_secs(),
                "serving on until connections have ended"
            );
        }
    };
    let served = tokio::select! {
        _ = server::serve_with(listener, app, limits, stop) => Ok(()),
        failure = coordinator.failed() => Err(failure),
        _ = signals.received(2) => {
            tracing::warn!("stopping at once");
            Ok(())
        }
    };
    data.remove_listen();
    if !tokio::task::spawn_blocking(move || audit_trail.close()).await.unwrap_or(false) {
        tracing::warn!("the last lines of the audit trail may not be on disk");
    }
    served?;
    let further = signals.count() + 1;
    tokio::select! {
        stopped = coordinator.stop() => stopped?,
        // The disk may hang, and a user who sends a further signal does not want to wait for it.
        _ = signals.received(further) => anyhow::bail!("stopped at once; the last decisions may not be recorded"),
    }
    tokio::select! {
        () = stores.close() => {}
        // Only the content store can be behind, and it never serves what is damaged.
        _ = signals.received(signals.count() + 1) => tracing::warn!("the content store was not checkpointed"),
    }
    tracing::info!("stopped; everything accepted is durable");
    worker_failed.map_or(Ok(()), Err)
}

/// Resolves with the error of an embedded worker that failed; never without such a worker.
async fn failed(worker: &mut Option<Embedded>) -> anyhow::Error {
    match worker {
        Some(worker) => worker.failed().await,
        None => std::future::pending().await,
    }
}

/// Resolves once another process serves instead of this one.
async fn replaced(replaceable: &Option<Replaceable>) {
    match replaceable {
        Some(replaceable) => replaceable.replaced().await,
        None => std::future::pending().await,
    }
}

/// The listening socket of the process that this one replaces; one of its own when the configured address is another.
fn take_socket(predecessor: &Predecessor, address: SocketAddr) -> Result<TcpListener> {
    let taken = predecessor.listener().context("the socket of the other process cannot be used")?;
    let is_same = address.port() == 0 || taken.local_addr().is_ok_and(|other| other == address);
    if !is_same {
        return listen(address);
    }
    taken.set_nonblocking(true).context("the socket of the other process cannot be used")?;
    Ok(TcpListener::from_std(taken)?)
}

/// Checks the files of TLS on each SIGHUP, until this is dropped.
fn reload_on_hangup(tls: server::Tls) -> Result<JoinSet<()>> {
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let mut reloading = JoinSet::new();
    reloading.spawn(async move {
        while hangup.recv().await.is_some() {
            tls.check_now();
        }
    });
    Ok(reloading)
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    let bind = || -> std::io::Result<TcpListener> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A server that was killed a moment ago must not keep its successor from the port.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    bind().map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => anyhow::anyhow!(
            "{address} is in use, perhaps by another Lessor; stop it, or choose another address (--listen, or server.address in the file)"
        ),
        _ => anyhow::anyhow!("cannot listen on {address}: {error}; choose another address (--listen, or server.address in the file)"),
    })
}

fn coordinator_options(config: &Config, cache_writer: ActionCacheWriter) -> coordinator::Options {
    let data = &config.data;
    let bytes = |mib: u64| usize::try_from(mib.saturating_mul(1 << 20)).unwrap_or(usize::MAX);
    let max_state_bytes = data.max_state_mib.map_or_else(machine::half_of_memory, bytes);
    // Above half, submits would be refused before the oldest final tasks go.
    let max_final_bytes = bytes(data.max_final_mib).min(max_state_bytes / 2);
    let projections: Vec<Box<dyn coordinator::Projection>> = vec![Box::new(cache_writer)];
    let queue_defaults = server::reapi::queue_defaults();
    coordinator::Options {
        projections,
        max_state_bytes,
        max_final_bytes,
        tenant_limits: config.limits.of_tasks(),
        queue_defaults,
        queue_creation: config.queues.create.into(),
        ..coordinator::Options::default()
    }
}

/// Where waiting tasks are published, if anywhere.
fn redis_options(config: &Redis, metrics: &server::Metrics) -> Result<Option<RedisOptions>> {
    let Some(url) = config.url.clone() else { return Ok(None) };
    let (password, metrics) = (config.password()?, metrics.clone());
    Ok(Some(RedisOptions { url, password, ledger: String::new(), metrics }))
}

/// The publisher to Redis. A URL that is not valid was refused with the configuration.
fn redis_streams(options: RedisOptions, ledger: ClusterId) -> Option<Box<dyn coordinator::Projection>> {
    match RedisStreams::new(RedisOptions { ledger: ledger.to_string(), ..options }) {
        Ok(streams) => Some(Box::new(streams)),
        Err(error) => {
            tracing::error!(error, "nothing is published to Redis");
            None
        }
    }
}

/// The last line of the audit trail, for the record of the start.
fn audit_head(directory: &Path) -> Option<Arc<str>> {
    match audit_trail::durable_head(directory) {
        Ok(head) => head.map(|head| head.to_string().into()),
        Err(error) => {
            tracing::error!(path = %directory.display(), %error, "the audit trail cannot be read");
            None
        }
    }
}

/// Configures each queue. A queue that has this configuration already costs no record.
async fn configure(handle: &coordinator::Handle, queues: Vec<(QueueKey, QueueConfig)>) -> Result<()> {
    for (key, config) in queues {
        let queue = Arc::new(key);
        match handle.configure(ConfigureQueue { queue: queue.clone(), config, by: None }).await? {
            ConfigureAnswer::Configured => {}
            ConfigureAnswer::Invalid(what) => anyhow::bail!("queue {}: {what}", queue.name),
            // It serves all the same, so that the operator can make room.
            ConfigureAnswer::Refused(why) => {
                tracing::warn!(queue = %queue.name, ?why, "the configuration of a queue was refused");
            }
        }
    }
    Ok(())
}
