//! The benchmarks of `lessor bench`. Every figure stands beside a limit of the machine that was measured in the same
//! run, because machines differ and are shared.
//!
//! The servers that benchmarks measure are child processes of the same program, started as `lessor up`.

mod backlog;
mod cycle;
mod cycle_peers;
mod drain;
mod fairness;
mod fdatasync;
mod fixture;
mod grpc;
mod http;
mod http2;
mod in_process;
mod latency;
mod load;
mod peer_command;
mod percentiles;
mod postgres;
mod process;
mod protection;
mod reapi;
mod redis_streams;
mod replay;
mod report;
mod snapshot;
mod worker;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};

use report::Report;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  lessor bench cycle\n  lessor bench cycle --transport http --clients 64 --json\n  \
    lessor bench latency\n  lessor bench reapi --only execute\n  lessor bench backlog --tasks 10000,1000000\n\nUse a build of the profile `dist` (cargo build --profile dist) and an idle machine. \
    Data goes to a temporary directory in --dir."
)]
pub struct Options {
    #[command(subcommand)]
    bench: Bench,

    /// The parent of the temporary data directory; choose the disk that Lessor will run on
    #[arg(long, global = true, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Print one JSON object per line instead of a table
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Bench {
    /// Durable cycles of submit, lease and complete per second, beside syncs and no-op requests per second
    Cycle(cycle::Options),
    /// Appends to a ledger in PostgreSQL per second, beside syncs of the disk
    Append(postgres::AppendOptions),
    /// The time from a submit until an idle worker has the task
    Latency(latency::Options),
    /// The p99 of one tenant alone, and beside a tenant that sends ten times what its limits permit
    Fairness(fairness::Options),
    /// Requests, polls and worker streams while nodes of a cluster are drained, replaced or killed: what fails, and the pauses
    Drain(drain::Options),
    /// Memory of each waiting task, and the cost of a lease, with many waiting tasks
    Backlog(backlog::Options),
    /// The replay of a ledger at a start, with and without a snapshot
    Replay(replay::Options),
    /// The pause of the writer during a snapshot
    Snapshot(snapshot::Options),
    /// Remote execution, the content store and the action cache over gRPC, beside goals and limits
    Reapi(reapi::Options),
    /// No-op actions in each backend, beside a bare process, and an input tree of many small files
    Worker(worker::Options),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    InProcess,
    Http,
    /// Three calls per cycle
    Grpc,
    /// A stream for each worker, with batches
    GrpcStream,
}

/// The name of a value on the command line.
fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Runs one benchmark and prints its figures to standard output.
pub fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let report = Report::new(options.json);
    runtime.block_on(async {
        match &options.bench {
            Bench::Cycle(bench) => cycle::run(bench, &options.dir, &report).await,
            Bench::Append(bench) => postgres::run_append(bench, &options.dir, &report).await,
            Bench::Latency(bench) => latency::run(bench, &options.dir, &report).await,
            Bench::Fairness(bench) => fairness::run(bench, &options.dir, &report).await,
            Bench::Drain(bench) => drain::run(bench, &report).await,
            Bench::Backlog(bench) => backlog::run(bench, &options.dir, &report).await,
            Bench::Replay(bench) => replay::run(bench, &options.dir, &report).await,
            Bench::Snapshot(bench) => snapshot::run(bench, &options.dir, &report).await,
            Bench::Reapi(bench) => reapi::run(bench, &options.dir, &report).await,
            Bench::Worker(bench) => worker::run(bench, &options.dir, &report).await,
        }
    })
}
