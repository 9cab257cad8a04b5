//! Measures streamed uploads and downloads of large blobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use blobs::Digest;
use bytes::Bytes;
use reapi_client::Client;
use wire::bytestream::{ReadRequest, WriteRequest};

use super::super::load::Rate;
use super::Trial;
use super::content::{Beginning, Content};
use super::row::{Goal, Row};

/// Blobs that are read in turn.
const BLOBS: usize = 4;
const WRITE_GOAL: Goal = Goal::AtLeast(700.0);
const READ_GOAL: Goal = Goal::AtLeast(1_500.0);

pub(super) async fn write(trial: &Trial<'_>) -> Result<Row> {
    let content = Content::new()?;
    let beginning = Arc::new(content.beginning(trial.stream_bytes));
    let work = |client: Client, _, done: Arc<AtomicU64>| {
        let (content, beginning) = (content.clone(), beginning.clone());
        async move {
            loop {
                let number = content.number();
                let (digest, pieces) = beginning.end_in(number);
                upload(&client, number, digest, pieces, done.clone()).await?;
            }
        }
    };
    let rate = trial.rate(work).await?;
    Ok(row("stream-write", trial, &rate).goal(WRITE_GOAL))
}

pub(super) async fn read(trial: &Trial<'_>) -> Result<Row> {
    let digests = Arc::new(prepare(&trial.connect().await?, trial.stream_bytes).await?);
    let work = |client: Client, n: usize, done: Arc<AtomicU64>| {
        let digests = digests.clone();
        async move {
            for digest in digests.iter().cycle().skip(n % BLOBS) {
                let request =
                    ReadRequest { resource_name: format!("blobs/{digest}"), ..ReadRequest::default() };
                let mut pieces = client.byte_stream().read(request).await?.into_inner();
                let mut bytes = 0;
                while let Some(piece) = pieces.message().await? {
                    bytes += piece.data.len() as u64;
                    done.fetch_add(piece.data.len() as u64, Ordering::Relaxed);
                }
                ensure!(bytes == digest.size, "{bytes} bytes came of {digest}");
            }
            Ok(())
        }
    };
    let rate = trial.rate(work).await?;
    Ok(row("stream-read", trial, &rate).goal(READ_GOAL))
}

async fn prepare(client: &Client, bytes: u64) -> Result<Vec<Digest>> {
    let beginning: Beginning = Content::new()?.beginning(bytes);
    let mut digests = Vec::with_capacity(BLOBS);
    for number in 0..BLOBS as u64 {
        let (digest, pieces) = beginning.end_in(number);
        upload(client, number, digest, pieces, Arc::default()).await?;
        digests.push(digest);
    }
    Ok(digests)
}

/// Uploads a blob. Each piece counts when it is taken from here, so that the end of the time cuts no blob off.
async fn upload(
    client: &Client,
    number: u64,
    digest: Digest,
    pieces: Vec<Bytes>,
    taken: Arc<AtomicU64>,
) -> Result<()> {
    let last = pieces.len() - 1;
    // The number makes the name of the upload unique.
    let mut name = format!("uploads/00000000-0000-4000-8000-{number:012x}/blobs/{digest}");
    let mut offset = 0;
    let requests = pieces.into_iter().enumerate().map(move |(n, piece)| {
        let request = WriteRequest {
            resource_name: std::mem::take(&mut name),
            write_offset: offset,
            finish_write: n == last,
            data: piece,
        };
        let bytes = request.data.len();
        offset += bytes as i64;
        taken.fetch_add(bytes as u64, Ordering::Relaxed);
        request
    });
    let answer = client.byte_stream().write(tokio_stream::iter(requests)).await?.into_inner();
    let size = i64::try_from(digest.size)?;
    ensure!(answer.committed_size == size, "an upload of {size} bytes was answered {answer:?}");
    Ok(())
}

fn row(mode: &'static str, trial: &Trial<'_>, rate: &Rate) -> Row {
    const MB: f64 = 1e6;
    Row::new(mode, trial.clients, "mb_per_s", rate.per_s / MB)
        .with("server_cpu_us_per_mb", rate.server_cpu_us * MB)
        .with("client_cpu_us_per_mb", rate.client_cpu_us * MB)
}
