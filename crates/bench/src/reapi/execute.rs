//! Measures executions of no-op actions that are not cached, each of which must have run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bazel_remote_apis::google::longrunning::{Operation, operation};
use blobs::{Digest, DigestFunction};
use execution::digest;
use execution::reapi::{Action, Command, Directory, ExecuteRequest, ExecuteResponse};
use prost::Message;
use reapi_client::Client;
use worker::executors::Backend;

use super::super::load::Rate;
use super::super::percentiles::{CallTimes, Percentiles};
use super::super::process;
use super::super::worker::BareProcess;
use super::content::Content;
use super::row::{Goal, Row};
use super::{Trial, put};

const NO_OP: &str = "/bin/true";
/// Actions that are uploaded with one call, whenever a client has none left. It counts, as one call of a hundred does.
const STOCK: usize = 100;
const MIB: f64 = (1 << 20) as f64;
/// Bare sandboxes before the executions, and again after them.
const BARE_RUNS: usize = 50;
const MAX_TIMES_BARE: f64 = 1.3;

pub(super) async fn measure(trial: &Trial<'_>) -> Result<Vec<Row>> {
    let (rate, percentiles) = executions(trial).await?;
    let (goal, goal_p50_ms, goal_rss) = goals(trial.clients);
    let row = |name, value| Row::new("execute", trial.clients, name, value);
    let peak_rss_mib = process::peak_rss_bytes(&trial.server.process()?)? as f64 / MIB;
    Ok(vec![
        row("executions_per_s", rate.per_s).goal(goal).costs(&rate),
        row("p50_ms", percentiles.at_ms(50.0)).goal(goal_p50_ms).with("p99_ms", percentiles.at_ms(99.0)),
        row("server_rss_mib", peak_rss_mib).goal(goal_rss),
    ])
}

/// Executions in the sandbox, and bare bubblewrap with the same sandbox around the same program before and after them.
pub(super) async fn measure_in_sandbox(trial: &Trial<'_>, directory: &Path) -> Result<Vec<Row>> {
    let bare = BareProcess::open(Backend::Sandbox, directory)?;
    let mut alone = bare.run_many(BARE_RUNS)?;
    let (rate, percentiles) = executions(trial).await?;
    alone.extend(bare.run_many(BARE_RUNS)?);
    let (bare_ms, p50_ms) = (Percentiles::of(alone).at_ms(50.0), percentiles.at_ms(50.0));
    let row = |name, value| Row::new("execute-sandbox", trial.clients, name, value);
    Ok(vec![
        row("executions_per_s", rate.per_s).costs(&rate),
        row("p50_ms", p50_ms).with("bare_p50_ms", bare_ms).with("p99_ms", percentiles.at_ms(99.0)),
        row("times_bare", p50_ms / bare_ms).goal(Goal::AtMost(MAX_TIMES_BARE)),
    ])
}

async fn executions(trial: &Trial<'_>) -> Result<(Rate, Percentiles)> {
    let actions = Arc::new(Actions::prepare(&trial.connect().await?).await?);
    let times = CallTimes::start();
    let work = |client: Client, _, done: Arc<AtomicU64>| {
        let (actions, times) = (actions.clone(), times.clone());
        async move {
            let mut stock = Vec::new();
            loop {
                let Some(action) = stock.pop() else {
                    stock = actions.upload(&client).await?;
                    continue;
                };
                let began = Instant::now();
                run(&client, &action).await?;
                times.record(began);
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let rate = trial.rate(work).await?;
    Ok((rate, times.percentiles()))
}

/// Executions a second, their median time, and the server's memory.
fn goals(clients: usize) -> (Option<Goal>, Option<Goal>, Option<Goal>) {
    match clients {
        1 => (Some(Goal::AtLeast(200.0)), Some(Goal::AtMost(5.0)), None),
        16 => (Some(Goal::AtLeast(600.0)), None, None),
        64 => (Some(Goal::AtLeast(750.0)), None, Some(Goal::AtMost(100.0))),
        _ => (None, None, None),
    }
}

/// Actions that differ in their salt alone.
struct Actions {
    content: Content,
    like: Action,
}

impl Actions {
    async fn prepare(client: &Client) -> Result<Actions> {
        let command = Command { arguments: vec![NO_OP.to_owned()], ..Command::default() };
        let (command, root) = (blob(&command), blob(&Directory::default()));
        let like = Action {
            command_digest: Some(digest::to_proto(&command.0)),
            input_root_digest: Some(digest::to_proto(&root.0)),
            ..Action::default()
        };
        put(client, vec![command, root]).await?;
        Ok(Actions { content: Content::new()?, like })
    }

    async fn upload(&self, client: &Client) -> Result<Vec<Digest>> {
        let salted =
            |_| blob(&Action { salt: self.content.number().to_le_bytes().into(), ..self.like.clone() });
        let blobs: Vec<_> = (0..STOCK).map(salted).collect();
        let digests = blobs.iter().map(|(digest, _)| *digest).collect();
        put(client, blobs).await?;
        Ok(digests)
    }
}

fn blob(message: &impl Message) -> (Digest, Vec<u8>) {
    let bytes = message.encode_to_vec();
    (Digest::of(DigestFunction::Sha256, &bytes), bytes)
}

async fn run(client: &Client, action: &Digest) -> Result<()> {
    let request =
        ExecuteRequest { action_digest: Some(digest::to_proto(action)), ..ExecuteRequest::default() };
    let mut operations = client.execution().execute(request).await?.into_inner();
    let mut last = None;
    while let Some(operation) = operations.message().await? {
        last = Some(operation);
    }
    let last = last.context("an execution was answered with nothing")?;
    let response = response(last)?;
    let status = response.status.unwrap_or_default();
    ensure!(status.code == 0, "an execution ended with {status:?}");
    ensure!(!response.cached_result, "a new action was answered from the cache");
    let code = response.result.context("an execution has no result")?.exit_code;
    ensure!(code == 0, "{NO_OP} exited with {code}");
    Ok(())
}

fn response(operation: Operation) -> Result<ExecuteResponse> {
    ensure!(operation.done, "the stream of an execution ended before the execution did");
    match operation.result {
        Some(operation::Result::Response(response)) => Ok(ExecuteResponse::decode(&response.value[..])?),
        other => anyhow::bail!("an execution ended with {other:?}"),
    }
}
