//! Measures GetActionResult of results that exist, with an output that exists.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use execution::digest;
use execution::reapi::{ActionResult, Digest, GetActionResultRequest, OutputFile, UpdateActionResultRequest};
use reapi_client::Client;

use super::super::percentiles::CallTimes;
use super::content::Content;
use super::row::{Goal, Row};
use super::{Trial, put};

/// Different results that are looked up in turn.
const RESULTS: usize = 1_000;
const GOAL: Goal = Goal::AtLeast(20_000.0);

pub(super) async fn measure(trial: &Trial<'_>) -> Result<Row> {
    let keys = Arc::new(prepare(&trial.connect().await?).await?);
    let times = CallTimes::start();
    let work = |client: Client, n: usize, done: Arc<AtomicU64>| {
        let (keys, times) = (keys.clone(), times.clone());
        async move {
            let first = n * RESULTS / 16;
            for (action, output) in keys.iter().cycle().skip(first) {
                let action_digest = Some(action.clone());
                let request = GetActionResultRequest { action_digest, ..GetActionResultRequest::default() };
                let began = Instant::now();
                let result = client.action_cache().get_action_result(request).await?.into_inner();
                times.record(began);
                let found = result.output_files.first().and_then(|file| file.digest.as_ref());
                ensure!(found == Some(output), "the result of another action was given");
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
    };
    let rate = trial.rate(work).await?;
    Ok(Row::new("action-result", trial.clients, "hits_per_s", rate.per_s)
        .goal(GOAL)
        .with("p50_ms", times.percentiles().at_ms(50.0))
        .with("p99_ms", times.percentiles().at_ms(99.0))
        .costs(&rate))
}

async fn prepare(client: &Client) -> Result<Vec<(Digest, Digest)>> {
    let content = Content::new()?;
    let mut keys = Vec::with_capacity(RESULTS);
    for _ in 0..RESULTS {
        let (action, output) = (content.small(), content.small());
        let [key, output_digest] = [&action.0, &output.0].map(digest::to_proto);
        put(client, vec![action, output]).await?;
        let (path, digest) = ("out".to_owned(), Some(output_digest.clone()));
        let file = OutputFile { path, digest, ..OutputFile::default() };
        let request = UpdateActionResultRequest {
            action_digest: Some(key.clone()),
            action_result: Some(ActionResult { output_files: vec![file], ..ActionResult::default() }),
            ..UpdateActionResultRequest::default()
        };
        client.action_cache().update_action_result(request).await?;
        keys.push((key, output_digest));
    }
    Ok(keys)
}
