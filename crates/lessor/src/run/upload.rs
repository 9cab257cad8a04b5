//! Uploads inputs: only those that the store lacks, small ones in batches, several calls at a time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blobs::Digest;
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use worker::Cas;
use worker::cas::{CasError, MAX_SMALL_BYTES};

use super::error::Error;
use super::inputs::{Inputs, Source};
use super::progress::Progress;
use super::remote::Remote;

/// Calls at a time, and so large files that are open.
const MAX_CALLS: usize = 4;
/// Content that one call brings.
const MAX_CALL_BYTES: u64 = 2 * 1024 * 1024;

/// What had to be brought.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uploaded {
    pub blobs: usize,
    pub bytes: u64,
}

pub(super) async fn upload(
    remote: &Arc<Remote>,
    inputs: &Inputs,
    progress: &Progress,
) -> Result<Uploaded, Error> {
    // The empty content is always there.
    let mut digests: Vec<Digest> = inputs.blobs.keys().filter(|digest| digest.size > 0).copied().collect();
    digests.sort_unstable();
    let missing = remote.cas.find_missing(&remote.instance, &digests).await?;
    let uploaded = Uploaded { blobs: missing.len(), bytes: missing.iter().map(|digest| digest.size).sum() };
    progress.begin("Uploading inputs", uploaded.bytes);
    let permits = Arc::new(Semaphore::new(MAX_CALLS));
    let mut calls = JoinSet::new();
    for part in parts(inputs, &missing) {
        let (remote, permits, progress) = (remote.clone(), permits.clone(), progress.clone());
        calls.spawn(async move {
            let _permit = permits.acquire_owned().await;
            let bytes = part.iter().map(|(digest, _)| digest.size).sum();
            send(&remote, part).await.map(|()| progress.advance(bytes))
        });
    }
    while let Some(done) = calls.join_next().await {
        done.map_err(|error| CasError::File(error.to_string()))??;
    }
    Ok(uploaded)
}

type Part = Vec<(Digest, Source)>;

/// Splits into what one call brings: many small ones, or a large one.
fn parts(inputs: &Inputs, missing: &[Digest]) -> Vec<Part> {
    let mut parts = Vec::new();
    let (mut small, mut bytes) = (Part::new(), 0);
    for digest in missing {
        let Some(source) = inputs.blobs.get(digest) else { continue };
        if digest.size > MAX_SMALL_BYTES {
            parts.push(vec![(*digest, source.clone())]);
            continue;
        }
        if bytes + digest.size > MAX_CALL_BYTES {
            parts.push(std::mem::take(&mut small));
            bytes = 0;
        }
        bytes += digest.size;
        small.push((*digest, source.clone()));
    }
    parts.extend((!small.is_empty()).then_some(small));
    parts
}

async fn send(remote: &Remote, mut part: Part) -> Result<(), Error> {
    if part.len() == 1 && part[0].0.size > MAX_SMALL_BYTES {
        let Some((digest, source)) = part.pop() else { return Ok(()) };
        let opened = blocking(move || open(source)).await?;
        return Ok(remote.cas.upload_file(&remote.instance, &digest, opened).await?);
    }
    let contents = blocking(move || part.into_iter().map(content).collect::<Result<Vec<_>, _>>()).await?;
    Ok(remote.cas.upload_many(&remote.instance, contents).await?)
}

/// Large contents travel as files.
fn open(source: Source) -> Result<File, Error> {
    match source {
        Source::File(path) => File::open(&path).map_err(|error| Error::input(&path, error)),
        Source::Bytes(content) => {
            let write = || {
                let mut file = tempfile::tempfile()?;
                std::io::Write::write_all(&mut file, &content)?;
                Ok(file)
            };
            write().map_err(|error: std::io::Error| CasError::File(error.to_string()).into())
        }
    }
}

fn content((digest, source): (Digest, Source)) -> Result<(Digest, Bytes), Error> {
    let path: PathBuf = match source {
        Source::Bytes(content) => return Ok((digest, content)),
        Source::File(path) => path,
    };
    let content = read_at_most(&path, digest.size + 1).map_err(|error| Error::input(&path, error))?;
    if Digest::of(digest.function, &content) == digest {
        Ok((digest, content.into()))
    } else {
        Err(Error::input(&path, "it was changed while it was read; run this again"))
    }
}

fn read_at_most(path: &Path, bytes: u64) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(File::open(path)?, bytes), &mut content)?;
    Ok(content)
}

/// Runs what waits for the disk where it holds up nobody else.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| CasError::File(error.to_string()))?
}
