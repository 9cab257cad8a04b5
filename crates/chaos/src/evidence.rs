//! Repeats every decided request and reads every task, after the faults are over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::api::{self, Answer};
use crate::clients::send_report;
use crate::recorder::{Observations, Report, Submission};
use crate::world::{QUEUE, World};

const PAGE: usize = 500;
const MAX_PAGES: usize = 1_000;
const PARALLEL_CALLS: usize = 16;

/// The answers of the server in the end, and all answers before.
#[derive(Default)]
pub(crate) struct Evidence {
    pub observations: Observations,
    /// Every task of the queue, from the list.
    pub listed: Vec<Value>,
    /// Every listed or accepted task, as a read returns it now; null when the server does not know it.
    pub tasks: BTreeMap<String, Value>,
    pub histories: BTreeMap<String, Vec<Value>>,
    /// Every decided report with its repetition, which goes through another contract where one supports it.
    pub repeats: Vec<(Report, Report)>,
    /// Every submit with a dedup key that was ever accepted, sent again, with the id of the new answer.
    pub resubmits: Vec<(Submission, Option<String>)>,
    /// Whether the server's clock ran like ours, so that the times of leases can be judged from here.
    pub has_fair_clock: bool,
}

pub(crate) async fn collect(world: &Arc<World>, has_fair_clock: bool) -> Result<Evidence> {
    let observations = std::mem::take(&mut *world.recorder.observations());
    let listed = list_all(world).await?;
    let mut ids: BTreeSet<String> =
        listed.iter().filter_map(|task| task["taskId"].as_str()).map(Into::into).collect();
    ids.extend(observations.submissions.iter().filter_map(|submission| submission.task_id.clone()));

    let mut evidence = Evidence { listed, has_fair_clock, ..Evidence::default() };
    // Repeats first: whatever they might wrongly change, the reads below will see.
    let mut reports: BTreeMap<_, Report> = BTreeMap::new();
    for report in observations.reports.iter().filter(|report| report.response.is_some()) {
        reports.entry(report.request.key()).or_insert_with(|| report.clone());
    }
    evidence.repeats = in_parallel(world, reports.into_values(), |world, report| async move {
        let contract = report.contract.another(world.contracts, &report.request.kind);
        let sent_at = world.recorder.now();
        let response = api::until(Option::is_some, || send_report(&world, contract, &report.request)).await;
        let (request, ended_at) = (report.request.clone(), world.recorder.now());
        (report, Report { contract, request, sent_at, ended_at, response })
    })
    .await?;
    let mut keyed: BTreeMap<String, Submission> = BTreeMap::new();
    for submission in &observations.submissions {
        if submission.task_id.is_some() && submission.body["dedupKey"].is_string() {
            keyed.insert(submission.marker.clone(), submission.clone());
        }
    }
    evidence.resubmits = in_parallel(world, keyed.into_values(), |world, submission| async move {
        let answer = api::until(Answer::is_decided, || world.api.post("/v1/tasks", &submission.body)).await;
        let task_id = (answer.status() == Some(200)).then(|| answer.body()["taskId"].as_str());
        let task_id = task_id.flatten().map(str::to_string);
        (submission, task_id)
    })
    .await?;
    let tasks = in_parallel(world, ids.iter().cloned(), |world, id| async move {
        let answer = world.api.ask(&format!("/v1/tasks/{id}")).await;
        (id, if answer.status() == Some(200) { answer.body().clone() } else { Value::Null })
    });
    evidence.tasks = tasks.await?.into_iter().collect();
    let histories = in_parallel(world, ids.iter().cloned(), |world, id| async move {
        let answer = world.api.ask(&format!("/v1/tasks/{id}/history")).await;
        (id, answer.body()["events"].as_array().cloned().unwrap_or_default())
    });
    evidence.histories = histories.await?.into_iter().collect();
    evidence.observations = observations;
    let mut later = std::mem::take(&mut *world.recorder.observations());
    evidence.observations.calls.append(&mut later.calls);
    evidence.observations.rpcs.append(&mut later.rpcs);
    evidence.observations.dispatches.append(&mut later.dispatches);
    evidence.observations.unexpected_answers.append(&mut later.unexpected_answers);
    Ok(evidence)
}

async fn list_all(world: &World) -> Result<Vec<Value>> {
    let mut tasks = Vec::new();
    let mut token = String::new();
    for _ in 0..MAX_PAGES {
        let path = format!("/v1/tasks?queue={QUEUE}&limit={PAGE}{token}");
        let answer = world.api.ask(&path).await;
        let Answer::Response { status: 200, body } = answer else {
            bail!("the list was answered {answer:?}")
        };
        tasks.extend(body["tasks"].as_array().context("the list has no tasks")?.iter().cloned());
        match body["nextPageToken"].as_str() {
            Some(next) if !next.is_empty() => token = format!("&pageToken={next}"),
            _ => return Ok(tasks),
        }
    }
    bail!("the list does not end after {MAX_PAGES} pages")
}

/// Makes a call for each item, a few at a time, and gives the results in any order.
async fn in_parallel<I, T, F, Fut>(
    world: &Arc<World>,
    items: impl Iterator<Item = I>,
    call: F,
) -> Result<Vec<T>>
where
    F: Fn(Arc<World>, I) -> Fut,
    Fut: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let mut results = Vec::new();
    let mut calls = JoinSet::new();
    for item in items {
        if calls.len() >= PARALLEL_CALLS {
            results.extend(calls.join_next().await.transpose().context("a call panicked")?);
        }
        calls.spawn(call(world.clone(), item));
    }
    while let Some(result) = calls.join_next().await {
        results.push(result.context("a call panicked")?);
    }
    Ok(results)
}
