//! `lessor up`: everything embedded, started with one command.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};

use crate::data_dir::DataDir;
use crate::{greeting, logging, memory, open_files};

/// Smallest segment: a batch must fit into a part of it.
const MIN_SEGMENT_MIB: u64 = 32;
/// With less memory than this nothing useful can wait.
const MIN_STATE_MIB: u64 = 16;
/// Connections that may wait to be accepted: after a restart every worker comes back at once.
const BACKLOG: u32 = 4_096;

#[derive(clap::Args)]
#[command(after_help = "Stop it with Ctrl-C, or kill it in any way: nothing that was accepted is lost.\n\
    Exit codes: 0 stopped, 1 could not start, 3 data directory refused, 4 the ledger failed while running.")]
pub struct Options {
    /// Where to keep data; a missing or empty directory is initialised
    #[arg(long, value_name = "DIR", default_value = ".lessor", env = "LESSOR_DATA")]
    pub data: PathBuf,

    /// Where to listen; port 0 takes a free one and writes it to DIR/listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8980", env = "LESSOR_LISTEN")]
    pub listen: SocketAddr,

    /// Memory for tasks; near it old finished tasks are forgotten early, at it submits are refused [default: half of
    /// the machine's]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(MIN_STATE_MIB..))]
    pub max_state_mib: Option<u64>,

    /// Size of one segment of the ledger; two of them are always on disk
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(MIN_SEGMENT_MIB..=4096))]
    pub segment_mib: u64,

    /// Days for which finished history is kept
    #[arg(long, value_name = "DAYS", default_value_t = 7)]
    pub history_days: u64,

    /// Disk space for finished history
    #[arg(long, value_name = "MIB", default_value_t = 10 * 1024)]
    pub history_mib: u64,

    /// Drop a last batch that was written whole but does not verify. It may have been acknowledged: use this only after
    /// reading what the refusal says is at risk
    #[arg(long)]
    pub drop_unverified_tail: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let _log = logging::start();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(serve(options))
}

async fn serve(options: &Options) -> Result<()> {
    let limits = server::Limits { max_connections: open_files::connections(), ..server::Limits::default() };
    let data = DataDir::open(&options.data)?;
    let listener = listen(options.listen)?;
    let address = listener.local_addr().context("the listening socket has no address")?;
    let start = coordinator_options(options, &data)?;
    let mut running = tokio::task::spawn_blocking(move || coordinator::start(start)).await??;
    let app = server::App::new(running.handle.clone(), data.lease_key()?);
    if let Err(error) = data.write_listen(&address.to_string()) {
        tracing::warn!(
            error = format!("{error:#}"),
            "where the server listens could not be written down; it serves all the same"
        );
    }
    greeting::say(&data, address, &running.report);

    let stop = async {
        match wait_for_signal().await {
            Ok(signal) => tracing::info!(signal, "stopping: no new connections, open requests are finished"),
            Err(error) => tracing::error!(%error, "stopping, because no signal could stop this later"),
        }
    };
    let served = tokio::select! {
        _ = server::serve_with(listener, app, limits, stop) => Ok(()),
        failure = running.failed() => Err(failure),
        () = second_signal() => {
            tracing::warn!("stopping at once");
            Ok(())
        }
    };
    data.remove_listen();
    served?;
    tokio::select! {
        stopped = running.stop() => stopped?,
        // The disk may stand still, and whoever asks again does not want to wait for it.
        Ok(_) = wait_for_signal() => anyhow::bail!("stopped at once; what was decided last may not be recorded"),
    }
    tracing::info!("stopped; everything accepted is durable");
    Ok(())
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
            "{address} is in use, perhaps by another Lessor; stop it, or choose another address with --listen"
        ),
        _ => anyhow::anyhow!("cannot listen on {address}: {error}; choose another address with --listen"),
    })
}

fn coordinator_options(options: &Options, data: &DataDir) -> Result<coordinator::Options> {
    let mut cluster = [0; 16];
    getrandom::fill(&mut cluster).map_err(|error| anyhow::anyhow!("no randomness to be had: {error}"))?;
    let mut start = coordinator::Options::new(data.path());
    start.ledger.create = Some(coordinator::ClusterId(cluster));
    start.ledger.segment_bytes = options.segment_mib << 20;
    start.ledger.history_max_age_ms = options.history_days.saturating_mul(24 * 60 * 60 * 1_000);
    start.ledger.history_max_bytes = options.history_mib.saturating_mul(1 << 20);
    start.ledger.drop_unverified_tail = options.drop_unverified_tail;
    start.max_state_bytes = match options.max_state_mib {
        Some(mib) => usize::try_from(mib.saturating_mul(1 << 20)).unwrap_or(usize::MAX),
        None => memory::half_bytes(),
    };
    Ok(start)
}

/// Whoever asks twice does not want to wait for open requests.
async fn second_signal() {
    for _ in 0..2 {
        if wait_for_signal().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn wait_for_signal() -> Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    tokio::select! {
        _ = terminate.recv() => Ok("SIGTERM"),
        _ = interrupt.recv() => Ok("SIGINT"),
    }
}
