//! Measures FindMissingBlobs with many digests per call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use execution::digest;
use execution::reapi::{Digest, FindMissingBlobsRequest};
use reapi_client::Client;

use super::content::Content;
use super::row::{Goal, Row};
use super::{Trial, put};

/// Digests in one call, and how many of them are missing.
const DIGESTS: usize = 1_000;
const MISSING: usize = 100;
/// Blobs that are uploaded with one call.
const BATCH: usize = 100;
const GOAL: Goal = Goal::AtLeast(3_000_000.0);

pub(super) async fn measure(trial: &Trial<'_>) -> Result<Row> {
    let digests = Arc::new(prepare(&trial.connect().await?).await?);
    let work = |client: Client, _, done: Arc<AtomicU64>| {
        let digests = digests.clone();
        async move {
            loop {
                let blob_digests = digests.to_vec();
                let request = FindMissingBlobsRequest { blob_digests, ..FindMissingBlobsRequest::default() };
                let answer = client.storage().find_missing_blobs(request).await?.into_inner();
                let missing = answer.missing_blob_digests.len();
                ensure!(missing == MISSING, "{missing} blobs are said to be missing, and {MISSING} are");
                done.fetch_add(DIGESTS as u64, Ordering::Relaxed);
            }
        }
    };
    let rate = trial.rate(work).await?;
    Ok(Row::new("find-missing", trial.clients, "digests_per_s", rate.per_s).goal(GOAL).costs(&rate))
}

async fn prepare(client: &Client) -> Result<Vec<Digest>> {
    let content = Content::new()?;
    let mut digests = Vec::with_capacity(DIGESTS);
    while digests.len() < DIGESTS - MISSING {
        let blobs: Vec<_> = (0..BATCH).map(|_| content.small()).collect();
        digests.extend(blobs.iter().map(|(digest, _)| digest::to_proto(digest)));
        put(client, blobs).await?;
    }
    digests.extend((0..MISSING).map(|_| digest::to_proto(&content.small().0)));
    Ok(digests)
}
