//! The benchmarks of `lessor bench`. Every figure stands beside a limit of the machine that was measured in the same
//! run, because machines differ and are shared.
//!
//! The servers that benchmarks measure are child processes of the same program, started as `lessor up`.

mod backlog;
mod cycle;
mod fdatasync;
mod fixture;
mod grpc;
mod http;
mod in_process;
mod latency;
mod load;
mod noop;
mod rate;
mod reapi;
mod replay;
mod report;
mod rss;
mod snapshot;
mod stats;
mod worker;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};

use report::Report;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  lessor bench cycle\n  lessor bench cycle --transport http --clients 64 --json\n  \
    lessor bench latency\n  lessor bench reapi --only execute\n  lessor bench backlog --tasks 10000,1000000\n\nRun it on a release build and an idle machine. \
    Data goes to a new directory below --dir and is removed afterwards."
)]
pub struct Options {
    #[command(subcommand)]
    bench: Bench,

    /// Where to make the directory for the data; it should be on the disk that Lessor is to run on
    #[arg(long, global = true, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// One JSON object a line instead of a table
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Bench {
    /// Submit, lease, complete, all durable: cycles a second, beside syncs and no-op requests a second
    Cycle(cycle::Options),
    /// From a submit to the answer of an idle waiting worker
    Latency(latency::Options),
    /// Bytes for each waiting task, and the cost of a lease, with many waiting tasks
    Backlog(backlog::Options),
    /// How fast a ledger is replayed, with and without a snapshot
    Replay(replay::Options),
    /// How long the writer pauses while a snapshot is taken
    Snapshot(snapshot::Options),
    /// Remote execution, the content store and the action cache over gRPC, beside goals and limits
    Reapi(reapi::Options),
    /// Actions that do nothing through each backend, beside a bare process, and an input tree of many small files
    Worker(worker::Options),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    InProcess,
    Http,
    /// Three calls a cycle
    Grpc,
    /// A stream for each worker, with batches
    GrpcStream,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Transport::InProcess => "in-process",
            Transport::Http => "http",
            Transport::Grpc => "grpc",
            Transport::GrpcStream => "grpc-stream",
        }
    }
}

/// Runs one benchmark and prints its figures to standard output.
pub fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let report = Report::new(options.json);
    runtime.block_on(async {
        match &options.bench {
            Bench::Cycle(bench) => cycle::run(bench, &options.dir, &report).await,
            Bench::Latency(bench) => latency::run(bench, &options.dir, &report).await,
            Bench::Backlog(bench) => backlog::run(bench, &options.dir, &report).await,
            Bench::Replay(bench) => replay::run(bench, &options.dir, &report).await,
            Bench::Snapshot(bench) => snapshot::run(bench, &options.dir, &report).await,
            Bench::Reapi(bench) => reapi::run(bench, &options.dir, &report).await,
            Bench::Worker(bench) => worker::run(bench, &options.dir, &report).await,
        }
    })
}
