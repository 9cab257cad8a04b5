//! Downloads outputs: small ones in batches, large ones as streams, several calls at a time.

use std::future::ready;
use std::io::Write;

use blobs::Digest;
use execution::RelativePath;
use futures_util::{StreamExt, TryStreamExt, stream};
use reapi_client::{Transfer, transfers};

use super::destination::Destination;
use super::error::Error;
use super::fetch;
use super::outputs::{Entry, OutputFile, Outputs};
use super::progress::Progress;
use super::remote::Remote;
use super::upload::{MAX_CALLS, blocking};

pub(super) async fn download(
    remote: &Remote,
    outputs: &Outputs,
    to: &Destination,
    progress: &Progress,
) -> Result<(), Error> {
    progress.begin("Downloading outputs", outputs.bytes());
    let directories = outputs.entries.iter().filter_map(|entry| match entry {
        Entry::Directory { path } => Some(path.clone()),
        _ => None,
    });
    let (directories, parent): (Vec<RelativePath>, _) = (directories.collect(), to.clone());
    let make = move || directories.iter().try_for_each(|path| parent.make(path).map_err(failed(path)));
    blocking(make).await?;
    let files = outputs.entries.iter().filter_map(|entry| match entry {
        Entry::File(file) => Some(file.clone()),
        _ => None,
    });
    let calls =
        stream::iter(transfers(files, |file| file.digest.size)).map(|call| fetch_call(remote, to, call));
    calls
        .buffer_unordered(MAX_CALLS)
        .inspect_ok(|bytes| progress.advance(*bytes))
        .try_for_each(|_| ready(Ok(())))
        .await?;
    // Links come last, so that nothing is written through them.
    for entry in &outputs.entries {
        if let Entry::Link { path, target } = entry {
            to.link(path, target).map_err(failed(path))?;
        }
    }
    Ok(())
}

async fn fetch_call(remote: &Remote, to: &Destination, call: Transfer<OutputFile>) -> Result<u64, Error> {
    let files = match call {
        Transfer::Stream(file) => {
            let (open, unfinished) = to.begin(&file.path, file.is_executable).map_err(failed(&file.path))?;
            fetch::into_file(remote, file.digest, &open).await?;
            unfinished.finish().map_err(failed(&file.path))?;
            return Ok(file.digest.size);
        }
        Transfer::Batch(files) => files,
    };
    let digests: Vec<Digest> = files.iter().map(|file| file.digest).collect();
    let contents = fetch::small(remote, &digests).await?;
    let to = to.clone();
    let write = move || {
        files.iter().zip(contents).try_for_each(|(file, content)| {
            let (mut open, unfinished) =
                to.begin(&file.path, file.is_executable).map_err(failed(&file.path))?;
            open.write_all(&content).map_err(|error| Error::output(file.path.to_string(), error))?;
            unfinished.finish().map_err(failed(&file.path))
        })
    };
    blocking(write).await?;
    Ok(digests.iter().map(|digest| digest.size).sum())
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
