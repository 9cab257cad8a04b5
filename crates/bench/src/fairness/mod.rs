//! Measures whether the flood of one tenant slows another: cycles of a steady tenant alone, and beside a tenant that sends ten
//! times what its limits permit, in turns on one server.

mod flood;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::cycle::completion_path;
use super::fixture;
use super::http::{Client, Server};
use super::percentiles::Percentiles;
use super::report::{Line, Report};
use flood::{Actions, Flood};

const STEADY_TENANT: &str = "steady";
const FLOODING_TENANT: &str = "flooding";
/// How many times its limits the flooding tenant sends.
const TIMES_THE_LIMIT: u32 = 10;
/// Between two phases, so that connections and waits of the one before are over.
const SETTLE: Duration = Duration::from_millis(500);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Requests per second that the flooding tenant may send; its other limits are in proportion
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    limit: u32,

    /// Cycles of submit, lease and complete per second of the steady tenant
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    steady: u32,

    /// Seconds of each phase
    #[arg(long, default_value_t = 10)]
    seconds: u64,

    /// How often each of both phases is measured, in turns
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Fail if the p99 beside the flood is more than so many times that alone
    #[arg(long, value_name = "RATIO")]
    max_ratio: Option<f64>,
}

impl Options {
    pub(crate) fn polls(&self) -> u32 {
        self.limit / 5
    }

    fn executions(&self) -> u32 {
        self.limit / 10
    }

    fn limits(&self) -> String {
        format!(
            "[limits.tenants.{FLOODING_TENANT}]\nrequests_per_second = {}\npolls = {}\nexecutions = {}\n\
             open_tasks = {}\nblob_mib = 4\n",
            self.limit,
            self.polls(),
            self.executions(),
            self.limit * 5,
        )
    }
}

/// The times of the steady tenant in one phase.
struct Phase {
    p50_ms: f64,
    p99_ms: f64,
}

pub(crate) async fn run(options: &Options, below: &Path, report: &Report) -> Result<()> {
    let directory = fixture::directory(below)?;
    let server = Server::start_configured(&directory.path().join("data"), &options.limits()).await?;
    let actions = Actions::upload(server.address()).await?;
    let (mut alone, mut flooded) = (Vec::new(), Vec::new());
    // The first requests pay for what later ones find prepared.
    steady(&server, options, Duration::from_secs(1)).await?;
    for round in 1..=options.rounds {
        let time = Duration::from_secs(options.seconds);
        alone.push(steady(&server, options, time).await?);
        report.line(line(round, "alone", alone.last().context("a phase was measured")?));
        let flood = Flood::start(server.address(), options, &actions);
        sleep(SETTLE).await;
        flooded.push(steady(&server, options, time).await?);
        let sent = flood.stop().await;
        let line = line(round, "flooded", flooded.last().context("a phase was measured")?);
        let line = line
            .figure("flood_requests_per_s", sent.per_s())
            .figure("flood_refused_per_s", sent.refused_per_s());
        report
            .line(sent.kinds_per_s().into_iter().fold(line, |line, (name, per_s)| line.figure(name, per_s)));
        sleep(SETTLE).await;
    }
    let (alone_ms, flooded_ms) = (median(&alone), median(&flooded));
    let mut summary = Line::new("fairness")
        .with("phase", "median")
        .figure("alone_p99_ms", alone_ms)
        .figure("flooded_p99_ms", flooded_ms)
        .figure("p99_ratio", flooded_ms / alone_ms);
    for (name, limit) in LIMITS {
        summary = summary.with(name, limited(&server, limit).await?);
    }
    report.line(summary);
    server.stop().await?;
    let ratio = flooded_ms / alone_ms;
    match options.max_ratio {
        Some(max) if ratio > max => {
            bail!("beside the flood, the p99 is {ratio:.2} times that alone, above {max}")
        }
        _ => Ok(()),
    }
}

/// The figures about refusals, and the limits that they are of.
const LIMITS: [(&str, &str); 5] = [
    ("limited_requests", "requests_per_second"),
    ("limited_polls", "polls"),
    ("limited_executions", "executions"),
    ("limited_tasks", "open_tasks"),
    ("limited_blobs", "blob_mib"),
];

fn line(round: usize, phase: &'static str, measured: &Phase) -> Line {
    Line::new("fairness")
        .with("phase", phase)
        .with("round", round)
        .figure("p50_ms", measured.p50_ms)
        .figure("p99_ms", measured.p99_ms)
}

fn median(phases: &[Phase]) -> f64 {
    let mut p99: Vec<f64> = phases.iter().map(|phase| phase.p99_ms).collect();
    p99.sort_by(f64::total_cmp);
    p99.get(p99.len() / 2).copied().unwrap_or(0.0)
}

/// Cycles at a steady rate: a slow one delays the next, and is not made up for.
async fn steady(server: &Server, options: &Options, time: Duration) -> Result<Phase> {
    let mut client = Client::connect(server.address(), STEADY_TENANT).await?;
    let task = Bytes::from(json!({"queue": "q", "payload": "x".repeat(200)}).to_string());
    let ask = Bytes::from(json!({"workerId": "w", "queues": ["q"], "waitMs": 1_000}).to_string());
    let done = Bytes::from(json!({"workerId": "w", "result": 1}).to_string());
    let mut ticks = interval(Duration::from_secs(1) / options.steady);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < time {
        ticks.tick().await;
        let cycle = Instant::now();
        client.post("/v1/tasks", task.clone()).await?;
        let leased = client.post("/v1/leases", ask.clone()).await?;
        client.post(&completion_path(&leased)?, done.clone()).await?;
        times.push(cycle.elapsed());
    }
    let percentiles = Percentiles::of(times);
    Ok(Phase { p50_ms: percentiles.at_ms(50.0), p99_ms: percentiles.at_ms(99.0) })
}

/// How often a limit refused something, by the server's own metrics.
async fn limited(server: &Server, limit: &str) -> Result<u64> {
    let text = server.connect().await?.get("/metrics").await?;
    let series = format!("lessor_limited_total{{limit=\"{limit}\"}} ");
    let text = String::from_utf8_lossy(&text);
    let value = text.lines().find_map(|line| line.strip_prefix(&series));
    value.context("the server does not count refusals")?.parse().context("a count is no number")
}
