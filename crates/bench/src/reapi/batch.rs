//! Measures batches of small blobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use execution::digest;
use execution::reapi::{BatchReadBlobsRequest, Digest};
use reapi_client::Client;

use super::content::Content;
use super::row::{Goal, Row};
use super::{Trial, put};

/// Blobs in one call.
const BATCH: usize = 100;
/// Batches that are read in turn.
const BATCHES: usize = 100;
const WRITE_GOAL: Goal = Goal::AtLeast(20_000.0);
const READ_GOAL: Goal = Goal::AtLeast(60_000.0);

pub(super) async fn write(trial: &Trial<'_>) -> Result<Row> {
    let content = Content::new()?;
    let work = |client: Client, _, done: Arc<AtomicU64>| {
        let content = content.clone();
        async move {
            loop {
                put(&client, (0..BATCH).map(|_| content.small()).collect()).await?;
                done.fetch_add(BATCH as u64, Ordering::Relaxed);
            }
        }
    };
    let rate = trial.rate(work).await?;
    Ok(Row::new("batch-write", trial.clients, "blobs_per_s", rate.per_s).goal(WRITE_GOAL).costs(&rate))
}

pub(super) async fn read(trial: &Trial<'_>) -> Result<Row> {
    let batches = Arc::new(prepare(&trial.connect().await?).await?);
    let work = |client: Client, n: usize, done: Arc<AtomicU64>| {
        let batches = batches.clone();
        async move {
            for digests in batches.iter().cycle().skip(n * BATCHES / 16) {
                let request =
                    BatchReadBlobsRequest { digests: digests.clone(), ..BatchReadBlobsRequest::default() };
                let answers = client.storage().batch_read_blobs(request).await?.into_inner().responses;
                ensure!(answers.len() == digests.len(), "a batch is not complete");
                for answer in &answers {
                    let size = answer.digest.as_ref().map(|digest| digest.size_bytes);
                    let is_whole = size == Some(answer.data.len() as i64);
                    ensure!(is_whole, "a blob is not whole: {:?}", answer.status);
                }
                done.fetch_add(answers.len() as u64, Ordering::Relaxed);
            }
            Ok(())
        }
    };
    let rate = trial.rate(work).await?;
    Ok(Row::new("batch-read", trial.clients, "blobs_per_s", rate.per_s).goal(READ_GOAL).costs(&rate))
}

async fn prepare(client: &Client) -> Result<Vec<Vec<Digest>>> {
    let content = Content::new()?;
    let mut batches = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let blobs: Vec<_> = (0..BATCH).map(|_| content.small()).collect();
        batches.push(blobs.iter().map(|(digest, _)| digest::to_proto(digest)).collect());
        put(client, blobs).await?;
    }
    Ok(batches)
}
