//! Measures batches of small blobs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};
use bazel_remote_apis::build::bazel::remote::execution::v2::{BatchReadBlobsRequest, Digest as ProtoDigest};

use super::super::load::LoadGenerator;
use super::Trial;
use super::client::ReapiClient;
use super::content::Content;
use super::row::{Goal, Row};
use crate::digest::digest_to_proto;

/// Blobs in one call.
const BATCH: usize = 100;
/// Batches that are read in turn.
const BATCHES: usize = 100;
const WRITE_GOAL: Goal = Goal::AtLeast(20_000.0);
const READ_GOAL: Goal = Goal::AtLeast(60_000.0);

pub(super) async fn write(trial: &Trial<'_>) -> Result<Row> {
    let content = Content::new()?;
    let mut load = LoadGenerator::new(0);
    for _ in 0..trial.clients {
        let client = ReapiClient::connect(trial.server).await?;
        let (content, done) = (content.clone(), load.done.clone());
        load.clients.spawn(async move {
            loop {
                client.put((0..BATCH).map(|_| content.small()).collect()).await?;
                done.fetch_add(BATCH as u64, Ordering::Relaxed);
            }
        });
    }
    let rate = load.measure(Some(trial.server), trial.time).await?;
    Ok(Row::new("batch-write", trial.clients, "blobs_per_s", rate.per_s).goal(WRITE_GOAL).costs(&rate))
}

pub(super) async fn read(trial: &Trial<'_>) -> Result<Row> {
    let batches = Arc::new(prepare(&ReapiClient::connect(trial.server).await?).await?);
    let mut load = LoadGenerator::new(0);
    for n in 0..trial.clients {
        let client = ReapiClient::connect(trial.server).await?;
        let (batches, done) = (batches.clone(), load.done.clone());
        load.clients.spawn(async move {
            for digests in batches.iter().cycle().skip(n * BATCHES / 16) {
                let request =
                    BatchReadBlobsRequest { digests: digests.clone(), ..BatchReadBlobsRequest::default() };
                let answers = client.cas().batch_read_blobs(request).await?.into_inner().responses;
                ensure!(answers.len() == digests.len(), "a batch is not complete");
                for answer in &answers {
                    let size = answer.digest.as_ref().map(|digest| digest.size_bytes);
                    ensure!(
                        size == Some(answer.data.len() as i64),
                        "a blob is not whole: {:?}",
                        answer.status
                    );
                }
                done.fetch_add(answers.len() as u64, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    let rate = load.measure(Some(trial.server), trial.time).await?;
    Ok(Row::new("batch-read", trial.clients, "blobs_per_s", rate.per_s).goal(READ_GOAL).costs(&rate))
}

async fn prepare(client: &ReapiClient) -> Result<Vec<Vec<ProtoDigest>>> {
    let content = Content::new()?;
    let mut batches = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let blobs: Vec<_> = (0..BATCH).map(|_| content.small()).collect();
        batches.push(blobs.iter().map(|(digest, _)| digest_to_proto(digest)).collect());
        client.put(blobs).await?;
    }
    Ok(batches)
}
