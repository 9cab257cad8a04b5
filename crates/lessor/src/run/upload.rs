//! Uploads inputs: only those that the store lacks, small ones in batches, several calls at a time.

use std::fs::File;
use std::future::ready;
use std::io::{Read, Write};

use blobs::Digest;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use reapi_client::{Cas, CasError, Transfer, transfers};

use super::error::Error;
use super::inputs::{Inputs, Source};
use super::progress::Progress;
use super::remote::Remote;

/// Concurrent calls, and so the number of large files that are open.
pub(super) const MAX_CALLS: usize = 4;

/// The blobs that the store lacked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uploaded {
    pub blobs: usize,
    pub bytes: u64,
}

pub(super) async fn upload(remote: &Remote, inputs: &Inputs, progress: &Progress) -> Result<Uploaded, Error> {
    // The store always has the empty content.
    let mut digests: Vec<Digest> = inputs.blobs.keys().filter(|digest| digest.size > 0).copied().collect();
    digests.sort_unstable();
    let missing = remote.client.find_missing(&remote.instance, &digests).await?;
    let uploaded = Uploaded { blobs: missing.len(), bytes: missing.iter().map(|digest| digest.size).sum() };
    progress.begin("Uploading inputs", uploaded.bytes);
    let blobs = missing.into_iter().filter_map(|digest| Some((digest, inputs.blobs.get(&digest)?.clone())));
    let calls = transfers(blobs, |(digest, _)| digest.size);
    let calls = stream::iter(calls).map(|call| send(remote, call));
    calls
        .buffer_unordered(MAX_CALLS)
        .inspect_ok(|bytes| progress.advance(*bytes))
        .try_for_each(|_| ready(Ok(())))
        .await?;
    Ok(uploaded)
}

async fn send(remote: &Remote, call: Transfer<(Digest, Source)>) -> Result<u64, Error> {
    match call {
        Transfer::Stream((digest, source)) => {
            let file = blocking(move || open(source)).await?;
            remote.client.upload_file(&remote.instance, &digest, file).await?;
            Ok(digest.size)
        }
        Transfer::Batch(blobs) => {
            let bytes = blobs.iter().map(|(digest, _)| digest.size).sum();
            let read = move || blobs.into_iter().map(content).collect::<Result<Vec<_>, _>>();
            remote.client.upload_many(&remote.instance, blocking(read).await?).await?;
            Ok(bytes)
        }
    }
}

/// Large contents are uploaded as files.
fn open(source: Source) -> Result<File, Error> {
    match source {
        Source::File(path) => File::open(&path).map_err(|error| Error::input(&path, error)),
        Source::Bytes(content) => {
            let mut file = tempfile::tempfile().map_err(CasError::from)?;
            file.write_all(&content).map_err(CasError::from)?;
            Ok(file)
        }
    }
}

fn content((digest, source): (Digest, Source)) -> Result<(Digest, Bytes), Error> {
    let path = match source {
        Source::Bytes(content) => return Ok((digest, content)),
        Source::File(path) => path,
    };
    let mut content = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(digest.size + 1).read_to_end(&mut content));
    read.map_err(|error| Error::input(&path, error))?;
    if Digest::of(digest.function, &content) == digest {
        Ok((digest, content.into()))
    } else {
        Err(Error::input(&path, "it was changed while it was read; run this again"))
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(|error| CasError::File(error.to_string()))?
}
