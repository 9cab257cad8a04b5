//! Measures GetActionResult of results that exist, with an output that exists.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Result, ensure};
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, Digest as ProtoDigest, GetActionResultRequest, OutputFile, UpdateActionResultRequest,
};

use super::super::load::LoadGenerator;
use super::Trial;
use super::call_times::CallTimes;
use super::client::ReapiClient;
use super::content::Content;
use super::row::{Goal, Row};
use crate::digest::digest_to_proto;

/// Different results that are looked up in turn.
const RESULTS: usize = 1_000;
const GOAL: Goal = Goal::AtLeast(20_000.0);

pub(super) async fn measure(trial: &Trial<'_>) -> Result<Row> {
    let keys = Arc::new(prepare(&ReapiClient::connect(trial.server).await?).await?);
    let mut load = LoadGenerator::new(0);
    let times = CallTimes::start();
    for n in 0..trial.clients {
        let client = ReapiClient::connect(trial.server).await?;
        let (keys, times, done) = (keys.clone(), times.clone(), load.done.clone());
        load.clients.spawn(async move {
            let first = n * RESULTS / 16;
            for (action, output) in keys.iter().cycle().skip(first) {
                let request = GetActionResultRequest {
                    action_digest: Some(action.clone()),
                    ..GetActionResultRequest::default()
                };
                let began = Instant::now();
                let result = client.results().get_action_result(request).await?.into_inner();
                times.record(began);
                let found = result.output_files.first().and_then(|file| file.digest.as_ref());
                ensure!(found == Some(output), "the result of another action was given");
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    let rate = load.measure(Some(trial.server), trial.time).await?;
    Ok(Row::new("action-result", trial.clients, "hits_per_s", rate.per_s)
        .goal(GOAL)
        .with("p50_ms", times.percentiles().at_ms(50.0))
        .with("p99_ms", times.percentiles().at_ms(99.0))
        .costs(&rate))
}

/// Actions with their outputs.
async fn prepare(client: &ReapiClient) -> Result<Vec<(ProtoDigest, ProtoDigest)>> {
    let content = Content::new()?;
    let mut keys = Vec::with_capacity(RESULTS);
    for _ in 0..RESULTS {
        let ((action, action_bytes), (output, output_bytes)) = (content.small(), content.small());
        client.put(vec![(action, action_bytes), (output, output_bytes)]).await?;
        let file = OutputFile {
            path: "out".to_owned(),
            digest: Some(digest_to_proto(&output)),
            ..OutputFile::default()
        };
        let request = UpdateActionResultRequest {
            action_digest: Some(digest_to_proto(&action)),
            action_result: Some(ActionResult { output_files: vec![file], ..ActionResult::default() }),
            ..UpdateActionResultRequest::default()
        };
        client.results().update_action_result(request).await?;
        keys.push((digest_to_proto(&action), digest_to_proto(&output)));
    }
    Ok(keys)
}
