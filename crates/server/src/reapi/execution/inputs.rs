//! What an action needs, and what of it is missing (R31): its command, its directories and their files, all of it named
//! at once so that a client can upload everything in one go.

use std::collections::HashSet;

use blobs::Digest;
use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, PreconditionViolation, StatusExt};

use super::expansion::{Expansion, MAX_DEPTH, too_deep};
use crate::reapi::digest;
use crate::reapi::messages::{self, Action, Directory};
use crate::reapi::store::Store;

/// Most directories of one input tree.
const MAX_DIRECTORIES: usize = 200_000;
/// Most files of one input tree.
const MAX_FILES: usize = 1_000_000;
/// Largest directory message.
const MAX_DIRECTORY_BYTES: u64 = 16 * 1_024 * 1_024;
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

/// Everything below `root`, as far as its directories are there.
pub async fn tree(store: &Store, root: &Digest) -> Result<Tree, Status> {
    let mut seen = HashSet::from([*root]);
    let mut level = vec![*root];
    let mut files = HashSet::new();
    let mut expansion = Expansion::default();
    let mut depth = 0;
    while !level.is_empty() {
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let mut next = Vec::new();
        for (directory, bytes) in level.iter().zip(directories(store, &level).await?) {
            let Some(bytes) = bytes else { continue };
            let read = read(directory, &bytes)?;
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
            expansion.add(*directory, &read, file_bytes, below);
        }
        within_bounds(seen.len(), files.len())?;
        level = next;
        depth += 1;
    }
    expansion.check(root)?;
    Ok(Tree { directories: seen.into_iter().collect(), files: files.into_iter().collect() })
}

/// Everything that an action needs, the action included, whether it is there or not.
pub async fn needed(store: &Store, action: &Digest) -> Result<Vec<Digest>, Status> {
    let Some(read) = message::<Action>(store, action, "an action").await? else { return Ok(vec![*action]) };
    let command = digest::named(read.command_digest.as_ref(), action.function)?;
    let root = digest::named(read.input_root_digest.as_ref(), action.function)?;
    let tree = tree(store, &root).await?;
    Ok([*action, command].into_iter().chain(tree.directories).chain(tree.files).collect())
}

/// What is missing of an action that was found to lack inputs when it ran.
pub async fn missing_of_action(store: &Store, action: &Digest) -> Result<Vec<Digest>, Status> {
    store.missing(&needed(store, action).await?).await
}

/// The bytes of directories, in order; none for what is missing.
pub async fn directories(store: &Store, digests: &[Digest]) -> Result<Vec<Option<Bytes>>, Status> {
    store.get_all(digests, MAX_DIRECTORY_BYTES).await
}

/// Keeps a walk over a tree from taking all memory.
pub fn within_bounds(directories: usize, files: usize) -> Result<(), Status> {
    match directories > MAX_DIRECTORIES || files > MAX_FILES {
        true => Err(Status::invalid_argument(format!(
            "a tree has at most {MAX_DIRECTORIES} directories and {MAX_FILES} different files"
        ))),
        false => Ok(()),
    }
}

/// A directory whose names are safe and in order (R12).
pub fn read(named: &Digest, bytes: &[u8]) -> Result<Directory, Status> {
    let read = Directory::decode(bytes).map_err(|_| {
        Status::invalid_argument(format!("{named} is not a directory of the Remote Execution API"))
    })?;
    let lists: [(&str, Vec<&str>); 3] = [
        ("files", read.files.iter().map(|node| node.name.as_str()).collect()),
        ("directories", read.directories.iter().map(|node| node.name.as_str()).collect()),
        ("symlinks", read.symlinks.iter().map(|node| node.name.as_str()).collect()),
    ];
    let mut names = HashSet::new();
    for (list, of_list) in &lists {
        for pair in of_list.windows(2) {
            if pair[0] >= pair[1] {
                return Err(Status::invalid_argument(format!(
                    "directory {named}: {list} must be sorted by name, but {:?} comes before {:?}",
                    pair[0], pair[1]
                )));
            }
        }
        for name in of_list {
            if let Some(what) = fault_of_name(name) {
                return Err(Status::invalid_argument(format!("directory {named}: the name {name:?} {what}")));
            }
            if !names.insert(*name) {
                return Err(Status::invalid_argument(format!(
                    "directory {named}: the name {name:?} is used twice"
                )));
            }
        }
    }
    Ok(read)
}

/// What keeps a name from being one step of a path.
fn fault_of_name(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("is empty"),
        "." | ".." => Some("leads elsewhere"),
        _ if name.contains('/') => Some("contains a slash"),
        _ if name.contains('\0') => Some("contains a NUL"),
        _ if name.len() > 255 => Some("is longer than 255 bytes"),
        _ => None,
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
    let Some(bytes) = store.get(digest, MAX_DIRECTORY_BYTES).await? else { return Ok(None) };
    M::decode(&bytes[..])
        .map(Some)
        .map_err(|_| Status::invalid_argument(format!("{digest} is not {what} of the Remote Execution API")))
}

/// What an action's result names, so that it is served only while all of it is there (R26).
pub async fn missing_outputs(
    store: &Store,
    result: &messages::ActionResult,
    function: blobs::DigestFunction,
) -> Result<bool, Status> {
    let mut needed = Vec::new();
    for file in &result.output_files {
        needed.push(digest::named(file.digest.as_ref(), function)?);
    }
    for raw in [&result.stdout_digest, &result.stderr_digest].into_iter().flatten() {
        needed.push(digest::named(Some(raw), function)?);
    }
    let mut trees = Vec::new();
    for directory in &result.output_directories {
        if let Some(tree) = &directory.tree_digest {
            trees.push(digest::named(Some(tree), function)?);
        }
        if let Some(root) = &directory.root_directory_digest {
            needed.push(digest::named(Some(root), function)?);
        }
    }
    for (tree, bytes) in trees.iter().zip(store.get_all(&trees, MAX_DIRECTORY_BYTES).await?) {
        let Some(bytes) = bytes else { return Ok(true) };
        let tree = messages::Tree::decode(&bytes[..]).map_err(|_| {
            Status::invalid_argument(format!("{tree} is not a tree of the Remote Execution API"))
        })?;
        for directory in tree.root.iter().chain(&tree.children) {
            for file in &directory.files {
                needed.push(digest::named(file.digest.as_ref(), function)?);
            }
        }
    }
    Ok(!store.missing(&needed).await?.is_empty())
}
