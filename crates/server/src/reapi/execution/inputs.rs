//! What an action needs, and what of it is missing (R31): its command, its directories and their files, all of it named
//! at once so that a client can upload everything in one go.

use std::collections::HashSet;

use blobs::Digest;
use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, PreconditionViolation, StatusExt};

use super::directory::{self, MAX_DIRECTORY_BYTES};
use super::tree_size::{MAX_DEPTH, TreeSize, too_deep};
use crate::reapi::concurrency::Permit;
use crate::reapi::digest;
use crate::reapi::messages::Action;
use crate::reapi::store::{self, Store};

/// Most directories of one input tree.
const MAX_DIRECTORIES: usize = 200_000;
/// Most files of one input tree.
const MAX_FILES: usize = 1_000_000;
/// Most bytes of all directory messages of one tree: those of a million files with names of usual lengths.
pub const MAX_TREE_BYTES: u64 = 128 * 1_024 * 1_024;
/// Largest action and command.
const MAX_MESSAGE_BYTES: u64 = MAX_DIRECTORY_BYTES;
/// Most missing blobs that are named in one answer, so that clients can read it: four megabytes are usual for a message.
/// What is left out is found missing by the next try.
const MAX_NAMED: usize = 30_000;
/// Largest detail of a status that is told in HTTP/2 headers, as base64: many clients take 8 KiB of headers.
const MAX_HEADER_DETAIL_BYTES: usize = 5 * 1_024;

/// The blobs of a tree, each once, whether they are there or not.
pub struct Tree {
    pub directories: Vec<Digest>,
    pub files: Vec<Digest>,
}

/// Everything below `root`, as far as its directories are there. A few megabytes of them are in memory at one time.
pub async fn tree(store: &Store, _permit: &Permit, root: &Digest) -> Result<Tree, Status> {
    let mut seen = HashSet::from([*root]);
    let mut level = vec![*root];
    let mut files = HashSet::new();
    let mut tree_size = TreeSize::default();
    let mut depth = 0;
    let mut bytes_read = 0_u64;
    while !level.is_empty() {
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let mut next = Vec::new();
        for batch in store::batches(&level) {
            bytes_read = batch.iter().fold(bytes_read, |sum, directory| sum.saturating_add(directory.size));
            within_bounds(seen.len(), files.len(), bytes_read)?;
            for (directory, bytes) in batch.iter().zip(directories(store, batch).await?) {
                let Some(bytes) = bytes else { continue };
                let read = directory::read(directory, &bytes)?;
                let mut file_bytes = 0_u64;
                for node in &read.files {
                    let file = digest::named(node.digest.as_ref(), root.function)?;
                    file_bytes = file_bytes.saturating_add(file.size);
                    files.insert(file);
                }
                let mut below = Vec::with_capacity(read.directories.len());
                for node in &read.directories {
                    let child = digest::named(node.digest.as_ref(), root.function)?;
                    below.push(child);
                    if seen.insert(child) {
                        next.push(child);
                    }
                }
                tree_size.add(*directory, &read, file_bytes, below)?;
            }
        }
        within_bounds(seen.len(), files.len(), bytes_read)?;
        level = next;
        depth += 1;
    }
    tree_size.check(root)?;
    Ok(Tree { directories: seen.into_iter().collect(), files: files.into_iter().collect() })
}

/// Everything that an action needs, the action included, whether it is there or not.
pub async fn needed(store: &Store, permit: &Permit, action: &Digest) -> Result<Vec<Digest>, Status> {
    let Some(read) = message::<Action>(store, action, "an action").await? else { return Ok(vec![*action]) };
    let command = digest::named(read.command_digest.as_ref(), action.function)?;
    let root = digest::named(read.input_root_digest.as_ref(), action.function)?;
    let tree = tree(store, permit, &root).await?;
    Ok([*action, command].into_iter().chain(tree.directories).chain(tree.files).collect())
}

/// What is missing of an action that was found to lack inputs when it ran.
pub async fn missing_of_action(store: &Store, action: &Digest) -> Result<Vec<Digest>, Status> {
    let permit = store.limits.walk().await?;
    store.missing(&needed(store, &permit, action).await?).await
}

/// The bytes of a batch of directories, in order; none for what is missing.
pub async fn directories(store: &Store, batch: &[Digest]) -> Result<Vec<Option<Bytes>>, Status> {
    store.get_batch(batch, MAX_DIRECTORY_BYTES).await
}

/// Keeps a walk over a tree from taking all memory. The bytes are those of its directories.
pub fn within_bounds(directories: usize, files: usize, bytes: u64) -> Result<(), Status> {
    match directories > MAX_DIRECTORIES || files > MAX_FILES || bytes > MAX_TREE_BYTES {
        true => Err(Status::invalid_argument(format!(
            "a tree has at most {MAX_DIRECTORIES} directories of {MAX_TREE_BYTES} bytes together, and {MAX_FILES} \
             different files"
        ))),
        false => Ok(()),
    }
}

/// The status that names what is missing.
pub fn refusal(missing: &[Digest]) -> Status {
    let violations = missing.iter().take(MAX_NAMED).map(|digest| PreconditionViolation {
        r#type: "MISSING".to_owned(),
        subject: format!("blobs/{}", digest::path(digest)),
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

/// Whether a status can be that of a call. One that cannot is told in a message, which may be larger.
pub fn fits_headers(status: &Status) -> bool {
    status.details().len() <= MAX_HEADER_DETAIL_BYTES
}

/// A message that the action needs, which must be there and be readable.
pub async fn message<M: Message + Default>(
    store: &Store,
    digest: &Digest,
    what: &str,
) -> Result<Option<M>, Status> {
    let Some(bytes) = store.get(digest, MAX_MESSAGE_BYTES).await? else { return Ok(None) };
    M::decode(&bytes[..])
        .map(Some)
        .map_err(|_| Status::invalid_argument(format!("{digest} is not {what} of the Remote Execution API")))
}
