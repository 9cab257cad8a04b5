//! Finds the inputs of an action and those that are missing (R31). All missing blobs are named together, so that a
//! client can upload them in one go.

use std::collections::HashSet;

use blobs::Digest;
use bytes::Bytes;
use execution::limits::MAX_MESSAGE_BYTES;
use execution::{Directory, TreeReader, check_sorted, decode_proto, digest, limits};
use prost::Message;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, PreconditionViolation, StatusExt};

use crate::reapi::concurrency::Permit;
use crate::reapi::messages::{self, Action};
use crate::reapi::store::{self, Store};

/// Most missing blobs that one answer names, so that it fits into a message; the next try finds the others missing.
const MAX_NAMED: usize = 30_000;
/// Largest detail of a status that is sent in HTTP/2 headers, as base64: many clients accept 8 KiB of headers. A larger
/// one is sent in a message.
pub(crate) const MAX_HEADER_DETAIL_BYTES: usize = 5 * 1_024;

/// The blobs of a tree, each once, whether they are present or missing.
pub(crate) struct Tree {
    pub directories: Vec<Digest>,
    pub files: Vec<Digest>,
}

/// Everything below `root` whose directories are present. At most one batch of directories is in memory at a time.
pub(crate) async fn tree(store: &Store, _permit: &Permit, root: &Digest) -> Result<Tree, Status> {
    let mut reader = TreeReader::new(*root);
    let mut files = HashSet::new();
    while let Some((_, level)) = reader.next_level()? {
        for batch in store::batches(&level) {
            let found = batch.iter().copied().zip(directories(store, batch).await?);
            let found: Vec<(Digest, Bytes)> =
                found.filter_map(|(digest, bytes)| Some((digest, bytes?))).collect();
            let bytes = found.iter().map(|(_, bytes)| bytes.len()).sum();
            let add = move || add_directories(&found, &mut reader, &mut files).map(|()| (reader, files));
            (reader, files) = store.limits.compute.run_on(bytes, add).await??;
        }
    }
    let (directories, _) = reader.finish()?;
    Ok(Tree { directories: directories.into_iter().collect(), files: files.into_iter().collect() })
}

fn add_directories(
    found: &[(Digest, Bytes)],
    reader: &mut TreeReader,
    files: &mut HashSet<Digest>,
) -> Result<(), Status> {
    for (digest, bytes) in found {
        let directory = Directory::from_proto(digest, decode_sorted(digest, bytes)?)?;
        files.extend(directory.files.iter().map(|file| file.digest));
        reader.add(*digest, &directory)?;
    }
    Ok(())
}

/// Decodes a directory whose entries must be sorted.
pub(crate) fn decode_sorted(digest: &Digest, bytes: &[u8]) -> Result<messages::Directory, Status> {
    let directory = decode_proto(digest, bytes, limits::MAX_DIRECTORY_ENTRIES)?;
    check_sorted(digest, &directory)?;
    Ok(directory)
}

/// The action and all of its inputs, present or missing.
pub(crate) async fn needed(store: &Store, permit: &Permit, action: &Digest) -> Result<Vec<Digest>, Status> {
    let Some(read) = message::<Action>(store, action, "an action").await? else { return Ok(vec![*action]) };
    let command = digest::from_proto(read.command_digest.as_ref(), action.function, "command_digest")?;
    let root = digest::from_proto(read.input_root_digest.as_ref(), action.function, "input_root_digest")?;
    let tree = tree(store, permit, &root).await?;
    Ok([*action, command].into_iter().chain(tree.directories).chain(tree.files).collect())
}

/// The missing inputs of an action that a worker could not run because of them.
pub(crate) async fn missing_of_action(store: &Store, action: &Digest) -> Result<Vec<Digest>, Status> {
    let permit = store.walk().await?;
    store.missing(&needed(store, &permit, action).await?).await
}

/// The bytes of a batch of directories, in order; none for a missing directory.
pub(crate) async fn directories(store: &Store, batch: &[Digest]) -> Result<Vec<Option<Bytes>>, Status> {
    store.get_batch(batch, MAX_MESSAGE_BYTES).await
}

pub(crate) fn refusal(missing: &[Digest]) -> Status {
    let violations = missing.iter().take(MAX_NAMED).map(|digest| PreconditionViolation {
        r#type: "MISSING".to_owned(),
        subject: format!("blobs/{}", digest::resource_path(digest)),
        description: String::new(),
    });
    let details = ErrorDetails::with_precondition_failure(violations.collect::<Vec<_>>());
    let more = match missing.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" ({more} more are not named here)"),
    };
    let message =
        format!("{} blobs that the action needs are missing{more}: upload them and try again", missing.len());
    Status::with_error_details(Code::FailedPrecondition, message, details)
}

/// None for a missing message; an error for one that cannot be decoded.
pub(crate) async fn message<M: Message + Default>(
    store: &Store,
    digest: &Digest,
    what: &str,
) -> Result<Option<M>, Status> {
    let Some(bytes) = store.get(digest, MAX_MESSAGE_BYTES).await? else { return Ok(None) };
    M::decode(&bytes[..])
        .map(Some)
        .map_err(|_| Status::invalid_argument(format!("{digest} is not {what} of the Remote Execution API")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use blobs::{DigestFunction, Tenant};

    use super::*;
    use crate::reapi::concurrency::ConcurrencyLimits;

    /// Regression: a directory may have megabytes, which took the thread of a connection as long as they took to decode.
    #[tokio::test]
    async fn a6_large_directories_are_not_decoded_where_connections_are_served() {
        let directory = tempfile::tempdir().unwrap();
        let local = blobs::Store::open(directory.path().join("content"), blobs::Options::default()).unwrap();
        let (blobs, tenant) = (Arc::new(blobs::Local::new(local)), Tenant::new("t").unwrap());
        let limits = ConcurrencyLimits::default();
        limits.compute.close();
        let store = Store { blobs, tenant, limits };
        for (files, is_handed_over) in [(1, false), (4_000, true)] {
            let file = |n: usize| {
                let content = Digest::of(DigestFunction::Sha256, &n.to_le_bytes());
                let digest = Some(digest::to_proto(&content));
                messages::FileNode { name: format!("{n:08}"), digest, ..messages::FileNode::default() }
            };
            let root = messages::Directory {
                files: (0..files).map(file).collect(),
                ..messages::Directory::default()
            };
            let bytes = root.encode_to_vec();
            let root = Digest::of(DigestFunction::Sha256, &bytes);
            assert!(store.blobs.put_many(&store.tenant, vec![(root, bytes.into())]).await[0].is_ok());
            let permit = store.walk().await.unwrap();
            let tree = tree(&store, &permit, &root).await;
            assert_eq!(tree.is_err(), is_handed_over, "{files} files");
            assert!(is_handed_over || tree.is_ok_and(|tree| tree.files.len() == files));
        }
    }
}
