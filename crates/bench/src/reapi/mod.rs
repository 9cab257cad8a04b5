//! Measures the Remote Execution API over gRPC, against `lessor up` in its own process with its embedded worker. Each row
//! has its own server, so that the memory of the server belongs to that row.
//!
//! The limits of the machine in the same run, and the goal of each row, stand beside the rows.

mod action_result;
mod batch;
mod call_times;
mod client;
mod content;
mod execute;
mod find_missing;
mod limits;
mod row;
mod stream;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::fixture;
use super::http::Server;
use super::report::Report;
use row::{Row, Table};

/// Clients of all rows but executions.
const CLIENTS: usize = 16;

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
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|time| !time.is_zero()).ok_or_else(|| "must be a number above 0".to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// The limits of the machine: syncs, no-op calls, processes, hashing
    Limits,
    /// Actions that run /bin/true, none of them cached
    Execute,
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

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Limits => "limits",
            Mode::Execute => "execute",
            Mode::ActionResult => "action-result",
            Mode::BatchWrite => "batch-write",
            Mode::BatchRead => "batch-read",
            Mode::StreamWrite => "stream-write",
            Mode::StreamRead => "stream-read",
            Mode::FindMissing => "find-missing",
        }
    }
}

/// The parameters of each row.
struct Trial<'a> {
    server: &'a Server,
    clients: usize,
    time: Duration,
    stream_bytes: u64,
}

pub(crate) async fn run(options: &Options, below: &Path, report: &Report) -> Result<()> {
    let table = Table::new(report);
    let modes = if options.only.is_empty() { Mode::value_variants() } else { &options.only };
    for &mode in modes {
        let clients = if mode == Mode::Execute { &options.clients[..] } else { &[CLIENTS] };
        for &clients in clients {
            report.note(&format!("{}, {:?} …", mode.name(), options.seconds));
            let directory = fixture::directory(below)?;
            let server = Server::start(&directory.path().join("data")).await?;
            let trial = Trial {
                server: &server,
                clients,
                time: options.seconds,
                stream_bytes: options.stream_mib << 20,
            };
            for row in measure(mode, &trial, directory.path()).await.context(mode.name())? {
                table.row(row);
            }
            server.stop().await?;
        }
    }
    Ok(())
}

async fn measure(mode: Mode, trial: &Trial<'_>, directory: &Path) -> Result<Vec<Row>> {
    Ok(match mode {
        Mode::Limits => limits::measure(trial, directory).await?,
        Mode::Execute => execute::measure(trial).await?,
        Mode::ActionResult => vec![action_result::measure(trial).await?],
        Mode::BatchWrite => vec![batch::write(trial).await?],
        Mode::BatchRead => vec![batch::read(trial).await?],
        Mode::StreamWrite => vec![stream::write(trial).await?],
        Mode::StreamRead => vec![stream::read(trial).await?],
        Mode::FindMissing => vec![find_missing::measure(trial).await?],
    })
}
