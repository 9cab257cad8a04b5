//! Measures FindMissingBlobs with many digests per call.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Digest as ProtoDigest, FindMissingBlobsRequest,
};

use super::super::load::LoadGenerator;
use super::Trial;
use super::client::ReapiClient;
use super::content::Content;
use super::row::{Goal, Row};
use crate::digest::digest_to_proto;

/// Digests in one call, and how many of them are missing.
const DIGESTS: usize = 1_000;
const MISSING: usize = 100;
/// Blobs that are uploaded with one call.
const BATCH: usize = 100;
const GOAL: Goal = Goal::AtLeast(3_000_000.0);

pub(super) async fn measure(trial: &Trial<'_>) -> Result<Row> {
    let digests = Arc::new(prepare(&ReapiClient::connect(trial.server).await?).await?);
    let mut load = LoadGenerator::new(0);
    for _ in 0..trial.clients {
        let client = ReapiClient::connect(trial.server).await?;
        let (digests, done) = (digests.clone(), load.done.clone());
        load.clients.spawn(async move {
            loop {
                let request = FindMissingBlobsRequest {
                    blob_digests: digests.to_vec(),
                    ..FindMissingBlobsRequest::default()
                };
                let answer = client.cas().find_missing_blobs(request).await?.into_inner();
                let missing = answer.missing_blob_digests.len();
                ensure!(missing == MISSING, "{missing} blobs are said to be missing, and {MISSING} are");
                done.fetch_add(DIGESTS as u64, Ordering::Relaxed);
            }
        });
    }
    let rate = load.measure(Some(trial.server), trial.time).await?;
    Ok(Row::new("find-missing", trial.clients, "digests_per_s", rate.per_s).goal(GOAL).costs(&rate))
}

async fn prepare(client: &ReapiClient) -> Result<Vec<ProtoDigest>> {
    let content = Content::new()?;
    let mut digests = Vec::with_capacity(DIGESTS);
    while digests.len() < DIGESTS - MISSING {
        let blobs: Vec<_> = (0..BATCH).map(|_| content.small()).collect();
        digests.extend(blobs.iter().map(|(digest, _)| digest_to_proto(digest)));
        client.put(blobs).await?;
    }
    digests.extend((0..MISSING).map(|_| digest_to_proto(&content.small().0)));
    Ok(digests)
}
