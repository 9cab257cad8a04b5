//! Measures durable cycles of submit, lease and complete: n clients submit, and n workers complete.
//!
//! The measurement is a steady state: the number of open tasks is limited, so that submits and completions have the same
//! rate. Otherwise the figure would be that of the slower half, while the machine builds a backlog.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use ledger::postgres::Tables;
use serde::Deserialize;
use serde_json::json;
use url::Url;
use worker::executors::Backend;

use super::cycle_peers::{Peer, PeerName};
use super::fdatasync::Syncs;
use super::http::{Server, noop_rate};
use super::in_process::InProcess;
use super::load::{LoadGenerator, Rate};
use super::postgres::{PostgresServer, parse_url};
use super::protection::Protection;
use super::redis_streams::Database;
use super::report::{Line, Report};
use super::{Transport, fdatasync, fixture, grpc, name_of};

/// The time to measure each limit of the machine.
const LIMIT_TIME: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of clients that submit, and of workers; each client may have four open tasks
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

    /// Tasks in one message, if the transport has batches
    #[arg(long, value_name = "TASKS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100))]
    batch: u32,

    /// Measures each number of clients more than once, with all transports in turns
    #[arg(long, value_name = "ROUNDS", default_value_t = 1)]
    rounds: u32,

    /// Also measures other queues, in turns with Lessor: Redis Streams (redis://HOST:PORT), which must sync every write
    /// (--appendonly yes --appendfsync always); and with --ledger postgres:URL a plain table with SKIP LOCKED (skip-locked),
    /// or any program (command:PROGRAM; see docs/benchmarks.md)
    #[arg(long, value_name = "QUEUE", value_delimiter = ',')]
    beside: Vec<PeerName>,

    /// The ledger in this PostgreSQL server instead of the disk of --dir; databases are created and dropped
    #[arg(long, value_name = "postgres:URL", value_parser = parse_url)]
    ledger: Option<Url>,

    /// Measures the ledger in PostgreSQL with each of these settings of `postgres.tables`, in turns
    #[arg(long, value_delimiter = ',', default_value = "off,transaction", requires = "ledger")]
    tables: Vec<Tables>,

    /// Measures HTTP with each of these protections of the server, in turns
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none")]
    protect: Vec<Protection>,

    /// Measures HTTP without Redis and with tasks published to an empty database of this Redis, in turns
    #[arg(long, value_name = "redis://HOST:PORT")]
    publish: Option<String>,
}

/// What is measured in turns, since the speed of a shared machine and its disk changes from minute to minute.
#[derive(Clone, Copy)]
enum Variant<'a> {
    File { protection: Protection, publish: Option<&'a str> },
    Postgres { server: &'a PostgresServer, tables: Tables },
}

pub(crate) async fn run(options: &Options, below: &Path, report: &Report) -> Result<()> {
    let is_http_only = options.transport.iter().all(|transport| *transport == Transport::Http);
    let is_protected = options.protect != [Protection::None];
    ensure!(
        is_http_only || !is_protected,
        "--protect needs --transport http: other transports are measured without protection"
    );
    ensure!(is_http_only || options.publish.is_none(), "--publish needs --transport http");
    if let Some(url) = &options.publish {
        Database::open(url).await?.ensure_empty().await?;
    }
    let postgres = match &options.ledger {
        Some(url) => {
            ensure!(
                !is_protected && options.publish.is_none(),
                "--ledger goes without --protect and --publish"
            );
            let here = [Transport::InProcess, Transport::Http];
            ensure!(
                options.transport.iter().all(|transport| here.contains(transport)),
                "--ledger needs --transport in-process,http"
            );
            Some(PostgresServer::connect(url).await?)
        }
        None => None,
    };
    let mut peers = Vec::new();
    for name in &options.beside {
        peers.push(Peer::find(name, postgres.as_ref()).await?);
    }
    let variants = variants(options, postgres.as_ref());
    for &clients in &options.clients {
        for _ in 0..options.rounds {
            for &transport in &options.transport {
                for &variant in &variants {
                    round(options, transport, clients, variant, below, report).await?;
                }
            }
            for peer in &peers {
                report.note(&format!("{clients} clients, {}, {} s …", peer.name(), options.seconds));
                let time = Duration::from_secs(options.seconds);
                report.line(peer.measure(clients, &payload(options.payload), time).await?);
            }
        }
    }
    Ok(())
}

fn variants<'a>(options: &'a Options, postgres: Option<&'a PostgresServer>) -> Vec<Variant<'a>> {
    if let Some(server) = postgres {
        return options.tables.iter().map(|&tables| Variant::Postgres { server, tables }).collect();
    }
    let mut variants = Vec::new();
    for &protection in &options.protect {
        variants.push(Variant::File { protection, publish: None });
        if let publish @ Some(_) = options.publish.as_deref() {
            variants.push(Variant::File { protection, publish });
        }
    }
    variants
}

async fn round(
    options: &Options,
    transport: Transport,
    clients: usize,
    variant: Variant<'_>,
    below: &Path,
    report: &Report,
) -> Result<()> {
    let directory = fixture::directory(below)?;
    report.note(&format!("{} clients, {}, {} s …", clients, name_of(&transport), options.seconds));
    let syncs = fdatasync::measure(directory.path(), LIMIT_TIME)?;
    let data = directory.path().join("data");
    let line = Line::new("cycle").with("transport", name_of(&transport)).with("clients", clients);
    let line = match variant {
        Variant::File { protection, publish } => {
            on_disk(options, line, transport, clients, (protection, publish), &data, &syncs).await?
        }
        Variant::Postgres { server, tables } => {
            let line = line.with("ledger", "postgres").with("tables", tables.name());
            in_postgres(options, line, transport, clients, (server, tables), &data, &syncs).await?
        }
    };
    report.line(line);
    Ok(())
}

async fn in_postgres(
    options: &Options,
    line: Line,
    transport: Transport,
    clients: usize,
    (server, tables): (&PostgresServer, Tables),
    data: &Path,
    syncs: &Syncs,
) -> Result<Line> {
    let time = Duration::from_secs(options.seconds);
    let database = server.create_database().await?;
    let line = if transport == Transport::InProcess {
        let running = database.start(tables).await?;
        let cycles =
            in_process(&InProcess::new(running.handle.clone(), options.payload), clients, time).await?;
        running.stop().await?;
        in_process_line(line, &cycles, syncs)
    } else {
        let node = Server::start_node(data, database.url(), tables.name()).await?;
        let line = http_line(line, options, &node, clients, syncs).await?;
        node.stop().await?;
        line
    };
    server.drop_database(database).await?;
    Ok(line)
}

async fn on_disk(
    options: &Options,
    line: Line,
    transport: Transport,
    clients: usize,
    (protection, publish): (Protection, Option<&str>),
    data: &Path,
    syncs: &Syncs,
) -> Result<Line> {
    let time = Duration::from_secs(options.seconds);
    Ok(match transport {
        Transport::InProcess => {
            let running = fixture::start(data, None).await?;
            let bench = InProcess::new(running.handle.clone(), options.payload);
            let cycles = in_process(&bench, clients, time).await?;
            running.stop().await?;
            in_process_line(line, &cycles, syncs)
        }
        Transport::Http => {
            let server = Server::start_publishing(data, Backend::Host, protection, publish).await?;
            let line = line.with("protection", name_of(&protection)).with("redis", publish.is_some());
            let line = http_line(line, options, &server, clients, syncs).await?;
            match publish {
                None => line,
                Some(url) => {
                    let added = published(&server).await?;
                    server.stop().await?;
                    Database::open(url).await?.clear().await?;
                    line.figure("redis_entries", added)
                }
            }
        }
        Transport::Grpc => {
            let server = Server::start(data).await?;
            let noop = grpc::lean_noop(&server, clients, LIMIT_TIME).await?;
            let cycles = grpc::calls(&server, clients, options.payload, time).await?;
            beside_noop(line.with("batch", 1), &cycles, syncs, &noop, "cycles_per_noop", noop.per_s)
        }
        Transport::GrpcStream => {
            let server = Server::start(data).await?;
            let noop = grpc::noop(&server, clients, LIMIT_TIME).await?;
            let batch = options.batch as usize;
            let cycles = grpc::streams(&server, clients, options.payload, batch, time).await?;
            beside_noop(line.with("batch", batch), &cycles, syncs, &noop, "cycles_per_noop", noop.per_s)
        }
    })
}

fn in_process_line(line: Line, cycles: &Rate, syncs: &Syncs) -> Line {
    line.figure("cycles_per_s", cycles.per_s)
        .figure("fdatasync_per_s", syncs.per_s)
        .figure("cycles_per_fdatasync", cycles.per_s / syncs.per_s)
        .figure("cpu_us_per_cycle", cycles.client_cpu_us)
}

async fn http_line(
    line: Line,
    options: &Options,
    server: &Server,
    clients: usize,
    syncs: &Syncs,
) -> Result<Line> {
    let noop = noop_rate(server, clients, LIMIT_TIME).await?;
    let cycles = http(server, clients, options.payload, Duration::from_secs(options.seconds)).await?;
    Ok(beside_noop(line, &cycles, syncs, &noop, "share_of_a_third_of_noop", noop.per_s / 3.0))
}

/// The figures of cycles over a network, and their `share` of a rate of no-op requests.
fn beside_noop(line: Line, cycles: &Rate, syncs: &Syncs, noop: &Rate, share: &'static str, of: f64) -> Line {
    let line = line
        .figure("cycles_per_s", cycles.per_s)
        .figure("fdatasync_per_s", syncs.per_s)
        .figure("noop_per_s", noop.per_s)
        .figure(share, cycles.per_s / of);
    with_costs(line, cycles)
        .figure("server_cpu_us_per_noop", noop.server_cpu_us)
        .figure("client_cpu_us_per_noop", noop.client_cpu_us)
}

pub(crate) fn with_costs(line: Line, cycles: &Rate) -> Line {
    line.figure("server_cpu_us_per_cycle", cycles.server_cpu_us)
        .figure("server_switches_per_cycle", cycles.server_switches)
        .figure("client_cpu_us_per_cycle", cycles.client_cpu_us)
}

fn payload(bytes: usize) -> String {
    "1".repeat(bytes.saturating_sub(2))
}

async fn in_process(bench: &InProcess, clients: usize, time: Duration) -> Result<Rate> {
    let mut load = LoadGenerator::new(clients);
    for n in 0..clients {
        let (client, open_tasks) = (bench.clone(), load.open_tasks.clone());
        load.clients.spawn(async move {
            loop {
                open_tasks.acquire().await?.forget();
                client.submit().await?;
            }
        });
        let (worker, open_tasks, done) = (bench.clone(), load.open_tasks.clone(), load.done.clone());
        load.clients.spawn(async move {
            let name: Arc<str> = format!("w{n}").into();
            loop {
                let grant = worker.lease(&name).await?;
                worker.complete(&name, &grant).await?;
                open_tasks.add_permits(1);
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    load.measure(None, time).await
}

async fn http(server: &Server, clients: usize, payload_bytes: usize, time: Duration) -> Result<Rate> {
    let mut load = LoadGenerator::new(clients);
    let task = Bytes::from(json!({"queue": "bench", "payload": payload(payload_bytes)}).to_string());
    for n in 0..clients {
        let (mut client, open_tasks, task) = (server.connect().await?, load.open_tasks.clone(), task.clone());
        load.clients.spawn(async move {
            loop {
                open_tasks.acquire().await?.forget();
                client.post("/v1/tasks", task.clone()).await?;
            }
        });
        let (mut worker, open_tasks, done) =
            (server.connect().await?, load.open_tasks.clone(), load.done.clone());
        load.clients.spawn(async move {
            let ask = Bytes::from(
                json!({"workerId": format!("w{n}"), "queues": ["bench"], "waitMs": 30_000}).to_string(),
            );
            let report = Bytes::from(json!({"workerId": format!("w{n}"), "result": 1}).to_string());
            loop {
                let leased = worker.post("/v1/leases", ask.clone()).await?;
                worker.post(&completion_path(&leased)?, report.clone()).await?;
                open_tasks.add_permits(1);
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    load.measure(Some(server.process()?), time).await
}

/// The entries that a server has added to streams of Redis.
async fn published(server: &Server) -> Result<f64> {
    let metrics = server.connect().await?.get("/metrics").await?;
    let metrics = String::from_utf8_lossy(&metrics);
    let added = metrics.lines().find_map(|line| line.strip_prefix("lessor_redis_added_entries_total "));
    Ok(added.context("the server has no metric of Redis")?.parse()?)
}

/// Where to report that the one task in the answer to a poll is done. That it was committed is what a 200 says.
pub(crate) fn completion_path(leased: &[u8]) -> Result<String> {
    #[derive(Deserialize)]
    struct Leases<'a> {
        #[serde(borrow)]
        leases: Vec<Lease<'a>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Lease<'a> {
        lease_id: &'a str,
    }
    let leases: Leases = serde_json::from_slice(leased)?;
    let lease = leases.leases.first().context("no task came in time")?;
    Ok(format!("/v1/leases/{}/complete", lease.lease_id))
}
