//! Measures the Remote Execution API over gRPC, against `lessor up` in its own process with its embedded worker. Each row
//! has its own server, so that the memory of the server belongs to that row.
//!
//! The limits of the machine in the same run, and the goal of each row, stand beside the rows.

mod action_result;
mod batch;
mod content;
mod execute;
mod find_missing;
mod limits;
mod row;
mod stream;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use blobs::Digest;
use clap::ValueEnum;
use execution::digest;
use execution::reapi::BatchUpdateBlobsRequest;
use execution::reapi::batch_update_blobs_request::Request as Blob;
use reapi_client::Client;
use worker::executors::{self, Backend, ExecutorOptions};

use super::http::Server;
use super::load::{LoadGenerator, Rate};
use super::protection::Protection;
use super::report::Report;
use super::{fixture, name_of};
use row::Row;

/// Clients of all rows but executions.
const CLIENTS: usize = 16;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The rows to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Mode>,

    /// Number of concurrent clients of executions
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    clients: Vec<usize>,

    /// Seconds for each measurement
    #[arg(long, default_value = "5", value_parser = parse_seconds)]
    seconds: Duration,

    /// Size of a streamed blob
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4_096))]
    stream_mib: u64,

    /// Measures each row with each of these protections of the server, in turns
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none")]
    protect: Vec<Protection>,

    /// Measures each row more than once, in turns
    #[arg(long, value_name = "ROUNDS", default_value_t = 1)]
    rounds: u32,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|time| !time.is_zero()).ok_or_else(|| "must be a number above 0".to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// The limits of the machine: syncs, no-op calls, processes, hashing
    Limits,
    /// Actions that run /bin/true as plain processes (--backend host), none of them cached
    Execute,
    /// The same in the sandbox, beside bare bubblewrap; left out where there is no sandbox
    ExecuteSandbox,
    /// GetActionResult of results that exist
    ActionResult,
    /// BatchUpdateBlobs, 100 new blobs of 1 to 4 KiB per call
    BatchWrite,
    /// BatchReadBlobs of the same blobs
    BatchRead,
    /// ByteStream.Write of new blobs
    StreamWrite,
    /// ByteStream.Read
    StreamRead,
    /// FindMissingBlobs, 1,000 digests per call, one in ten missing
    FindMissing,
}

struct Trial<'a> {
    server: &'a Server,
    clients: usize,
    time: Duration,
    stream_bytes: u64,
}

impl Trial<'_> {
    /// A client whose connection is open, so that the measurement does not include it.
    async fn connect(&self) -> Result<Client> {
        let connector = self.server.connector().clone();
        let options = reapi_client::Options { connector, ..reapi_client::Options::default() };
        let client = Client::new(self.server.url().as_str(), &options)?;
        client.capabilities("", CONNECT_TIMEOUT).await?;
        Ok(client)
    }

    /// The rate at which all clients together count. `work` gets a connection, the number of the client and the counter.
    async fn rate<W>(&self, work: impl Fn(Client, usize, Arc<AtomicU64>) -> W) -> Result<Rate>
    where
        W: Future<Output = Result<()>> + Send + 'static,
    {
        let mut load = LoadGenerator::new(0);
        for n in 0..self.clients {
            load.clients.spawn(work(self.connect().await?, n, load.done.clone()));
        }
        load.measure(Some(self.server.process()?), self.time).await
    }
}

/// Stores blobs in one call; each must be accepted.
async fn put(client: &Client, blobs: Vec<(Digest, Vec<u8>)>) -> Result<()> {
    let count = blobs.len();
    let upload = |(digest, data): (Digest, Vec<u8>)| Blob {
        digest: Some(digest::to_proto(&digest)),
        data,
        ..Blob::default()
    };
    let requests = blobs.into_iter().map(upload).collect();
    let request = BatchUpdateBlobsRequest { requests, ..BatchUpdateBlobsRequest::default() };
    let answers = client.storage().batch_update_blobs(request).await?.into_inner().responses;
    ensure!(answers.len() == count, "{} blobs of {count} were answered", answers.len());
    let refused = answers.into_iter().filter_map(|answer| answer.status).find(|status| status.code != 0);
    ensure!(refused.is_none(), "a blob was refused: {refused:?}");
    Ok(())
}

pub(crate) async fn run(options: &Options, below: &Path, report: &Report) -> Result<()> {
    row::print_headings(report);
    let modes = if options.only.is_empty() { Mode::value_variants() } else { &options.only };
    for &mode in modes {
        let clients = match mode {
            Mode::Execute => &options.clients[..],
            Mode::ExecuteSandbox => &[1],
            _ => &[CLIENTS],
        };
        let backend = if mode == Mode::ExecuteSandbox { Backend::Sandbox } else { Backend::Host };
        let tried = fixture::directory(below)?;
        if let Some(why) = unusable(backend, tried.path()).await {
            report.note(&format!("{} is left out: {why}", name_of(&mode)));
            continue;
        }
        for &clients in clients {
            for _ in 0..options.rounds {
                for &protection in &options.protect {
                    report.note(&format!("{}, {:?} …", name_of(&mode), options.seconds));
                    let directory = fixture::directory(below)?;
                    let data = directory.path().join("data");
                    let server = Server::start_with(&data, backend, protection).await?;
                    let trial = Trial {
                        server: &server,
                        clients,
                        time: options.seconds,
                        stream_bytes: options.stream_mib << 20,
                    };
                    let rows =
                        measure(mode, &trial, directory.path()).await.with_context(|| name_of(&mode))?;
                    rows.iter().for_each(|row| row::print(report, row, protection));
                    server.stop().await?;
                }
            }
        }
    }
    Ok(())
}

/// Why commands cannot run with this backend here.
async fn unusable(backend: Backend, directory: &Path) -> Option<String> {
    let options = ExecutorOptions::new(backend, "bench", directory.join("try"));
    executors::check(&options).await.into_iter().find_map(|check| check.result.err())
}

async fn measure(mode: Mode, trial: &Trial<'_>, directory: &Path) -> Result<Vec<Row>> {
    Ok(match mode {
        Mode::Limits => limits::measure(trial, directory).await?,
        Mode::Execute => execute::measure(trial).await?,
        Mode::ExecuteSandbox => execute::measure_in_sandbox(trial, directory).await?,
        Mode::ActionResult => vec![action_result::measure(trial).await?],
        Mode::BatchWrite => vec![batch::write(trial).await?],
        Mode::BatchRead => vec![batch::read(trial).await?],
        Mode::StreamWrite => vec![stream::write(trial).await?],
        Mode::StreamRead => vec![stream::read(trial).await?],
        Mode::FindMissing => vec![find_missing::measure(trial).await?],
    })
}
