//! Uploads outputs: only those that the store lacks, small ones in batches.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use blobs::Digest;
use reapi_client::MAX_SMALL_BYTES;

use super::Destination;
use super::output_blobs::{OutputBlobs, Source};
use crate::Failure;
use crate::dirfd::Directory;
use crate::inputs::blocking;
use execution::RelativePath;

/// Content of small outputs in one call.
const MAX_CALL_BYTES: u64 = 2 * 1024 * 1024;

pub(crate) async fn upload(
    to: Destination<'_>,
    blobs: &OutputBlobs,
    input_root: &Path,
) -> Result<(), Failure> {
    let digests = blobs.digests();
    if digests.is_empty() {
        return Ok(());
    }
    let (mut batch, mut batch_bytes) = (Vec::new(), 0);
    for digest in to.cas.find_missing(to.instance, &digests).await? {
        let source = match blobs.get(&digest) {
            Some(Source::File(path)) => {
                let (root, path) = (input_root.to_owned(), path.clone());
                blocking(move || open(&root, &path, digest)).await?
            }
            Some(Source::Bytes(content)) => Source::Bytes(content.clone()),
            Some(Source::Own(file)) => {
                let file = file.try_clone().map_err(|error| Failure::io("the command's output", error))?;
                Source::Own(file)
            }
            None => continue,
        };
        match source {
            Source::Bytes(content) if digest.size > MAX_SMALL_BYTES => {
                let directory = input_root.parent().unwrap_or(input_root).to_owned();
                let file = blocking(move || spill(&directory, &content)).await?;
                to.cas.upload_file(to.instance, &digest, file).await?;
            }
            Source::Bytes(content) => {
                if batch_bytes + digest.size > MAX_CALL_BYTES {
                    to.cas.upload_many(to.instance, std::mem::take(&mut batch)).await?;
                    batch_bytes = 0;
                }
                batch_bytes += digest.size;
                batch.push((digest, content));
            }
            Source::Own(file) => to.cas.upload_file(to.instance, &digest, file).await?,
            Source::File(_) => {}
        }
    }
    if !batch.is_empty() {
        to.cas.upload_many(to.instance, batch).await?;
    }
    Ok(())
}

/// Large contents are uploaded as files.
fn spill(directory: &Path, content: &[u8]) -> Result<File, Failure> {
    let write = || {
        let mut file = tempfile::tempfile_in(directory)?;
        file.write_all(content)?;
        Ok(file)
    };
    write().map_err(|error: std::io::Error| Failure::io("the work directory", error))
}

/// Opens a file that was hashed before. If the file has changed, the store refuses its content.
fn open(root: &Path, path: &RelativePath, digest: Digest) -> Result<Source, Failure> {
    let changed = |error: rustix::io::Errno| {
        let path = path.to_string();
        Failure::invalid_output(format!("the output {path:?} was changed while it was uploaded: {error}"))
    };
    let file = open_file(root, path).map_err(changed)?;
    if digest.size > MAX_SMALL_BYTES {
        return Ok(Source::Own(file));
    }
    let mut content = Vec::new();
    file.take(digest.size + 1)
        .read_to_end(&mut content)
        .map_err(|error| Failure::io("an output could not be read", error))?;
    Ok(Source::Bytes(content.into()))
}

/// Opens a file below a directory without following links.
pub(super) fn open_file(root: &Path, path: &RelativePath) -> Result<File, rustix::io::Errno> {
    let (parent, name) = path.split_last().ok_or(rustix::io::Errno::ISDIR)?;
    let parent = Directory::open(root)?.descend(&parent)?;
    Ok(parent.file(name)?.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use blobs::{DigestFunction, Local, Options, Store, Tenant};

    use super::*;
    use crate::{Cas, LocalCas};

    /// A child that the command left behind may go on writing. Files of every size are uploaded from where they are found.
    #[tokio::test]
    async fn w15_an_output_that_changes_after_it_was_hashed_is_not_stored_under_its_digest() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let cas = LocalCas::new(Arc::new(Local::new(store)), Tenant::new("t").unwrap());
        let to = || Destination { cas: &cas, instance: "" };
        let root = dir.path().join("root");
        std::fs::create_dir(&root).unwrap();
        for size in [1_000, MAX_SMALL_BYTES as usize + 1_000] {
            let hashed = vec![1; size];
            let digest = Digest::of(DigestFunction::Sha256, &hashed);
            for changed in [vec![2; size], vec![1; size - 1], vec![]] {
                let mut blobs = OutputBlobs::default();
                blobs.add_file(digest, None, || RelativePath::parse("out").unwrap());
                std::fs::write(root.join("out"), &changed).unwrap();
                assert!(upload(to(), &blobs, &root).await.is_err(), "{size} bytes, now {}", changed.len());
                assert_eq!(cas.find_missing("", &[digest]).await.unwrap(), [digest]);
            }
            // As it was hashed, it is stored.
            let mut blobs = OutputBlobs::default();
            blobs.add_file(digest, None, || RelativePath::parse("out").unwrap());
            std::fs::write(root.join("out"), &hashed).unwrap();
            upload(to(), &blobs, &root).await.unwrap();
        }
    }
}
