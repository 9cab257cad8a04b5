//! Downloads outputs: small ones in batches, large ones as streams, several calls at a time.

use std::io::Write;
use std::sync::Arc;

use blobs::Digest;
use execution::RelativePath;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use worker::cas::{CasError, MAX_SMALL_BYTES};

use super::destination::Destination;
use super::error::Error;
use super::fetch;
use super::outputs::{Entry, Outputs};
use super::progress::Progress;
use super::remote::Remote;
use super::upload::blocking;

/// Calls at a time, and so large files that are open.
const MAX_CALLS: usize = 4;
/// Content that one call brings.
const MAX_CALL_BYTES: u64 = 2 * 1024 * 1024;
/// Most blobs that one call asks for.
const MAX_CALL_BLOBS: usize = 1_000;

pub(super) async fn download(
    remote: &Arc<Remote>,
    outputs: &Outputs,
    to: &Destination,
    progress: &Progress,
) -> Result<(), Error> {
    progress.begin("Downloading outputs", outputs.bytes());
    let directories = outputs.entries.iter().filter_map(|entry| match entry {
        Entry::Directory { path } => Some(path.clone()),
        _ => None,
    });
    let (directories, place): (Vec<RelativePath>, _) = (directories.collect(), to.clone());
    let make = move || directories.iter().try_for_each(|path| place.make(path).map_err(failed(path)));
    blocking(make).await?;
    let permits = Arc::new(Semaphore::new(MAX_CALLS));
    let mut calls = JoinSet::new();
    for part in parts(&outputs.entries) {
        let (remote, permits) = (remote.clone(), permits.clone());
        let (to, progress) = (to.clone(), progress.clone());
        calls.spawn(async move {
            let _permit = permits.acquire_owned().await;
            let bytes = part.iter().map(|file| file.digest.size).sum();
            bring(&remote, &to, part).await.map(|()| progress.advance(bytes))
        });
    }
    while let Some(done) = calls.join_next().await {
        done.map_err(|error| CasError::File(error.to_string()))??;
    }
    // Links come last: nothing is written after them that could meet one.
    for entry in &outputs.entries {
        if let Entry::Link { path, target } = entry {
            to.link(path, target).map_err(failed(path))?;
        }
    }
    Ok(())
}

#[derive(Clone)]
struct Wanted {
    path: RelativePath,
    digest: Digest,
    is_executable: bool,
}

/// Splits into what one call brings: many small ones, or a large one.
fn parts(entries: &[Entry]) -> Vec<Vec<Wanted>> {
    let mut parts = Vec::new();
    let (mut small, mut bytes) = (Vec::new(), 0);
    for entry in entries {
        let Entry::File { path, digest, is_executable } = entry else { continue };
        let file = Wanted { path: path.clone(), digest: *digest, is_executable: *is_executable };
        if digest.size > MAX_SMALL_BYTES {
            parts.push(vec![file]);
            continue;
        }
        if bytes + digest.size > MAX_CALL_BYTES || small.len() == MAX_CALL_BLOBS {
            parts.push(std::mem::take(&mut small));
            bytes = 0;
        }
        bytes += digest.size;
        small.push(file);
    }
    parts.extend((!small.is_empty()).then_some(small));
    parts
}

async fn bring(remote: &Remote, to: &Destination, part: Vec<Wanted>) -> Result<(), Error> {
    if let [file] = &part[..]
        && file.digest.size > MAX_SMALL_BYTES
    {
        let (open, unfinished) = to.begin(&file.path, file.is_executable).map_err(failed(&file.path))?;
        fetch::into_file(remote, file.digest, &open).await?;
        return unfinished.finish().map_err(failed(&file.path));
    }
    let digests: Vec<Digest> = part.iter().map(|file| file.digest).collect();
    let contents = fetch::small(remote, &digests).await?;
    let to = to.clone();
    let write = move || {
        part.iter().zip(contents).try_for_each(|(file, content)| {
            let (mut open, unfinished) =
                to.begin(&file.path, file.is_executable).map_err(failed(&file.path))?;
            open.write_all(&content).map_err(|error| Error::output(file.path.to_string(), error))?;
            unfinished.finish().map_err(failed(&file.path))
        })
    };
    blocking(write).await
}

fn failed(path: &RelativePath) -> impl FnOnce(rustix::io::Errno) -> Error {
    move |error| {
        let why = match error {
            rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => {
                "a part of its path is no directory here, or a symbolic link, which is not followed"
                    .to_owned()
            }
            rustix::io::Errno::ISDIR => "there is a directory of this name here".to_owned(),
            error => std::io::Error::from(error).to_string(),
        };
        Error::output(path.to_string(), why)
    }
}
