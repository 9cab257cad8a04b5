//! Uploads an action with a tree of small files.

use std::collections::{BTreeMap, HashSet};

use anyhow::Result;
use blobs::{Digest, DigestFunction};
use bytes::Bytes;
use execution::digest;
use execution::reapi::{Action, Command, Directory, DirectoryNode, FileNode};
use prost::Message;
use worker::Cas;

/// Blobs per upload.
const BATCH: usize = 1_000;

/// Files by their paths, each of which is `directory/file`.
pub(super) async fn store(cas: &dyn Cas, command: &[&str], files: &[(String, String)]) -> Result<Digest> {
    let mut blobs = Vec::new();
    let mut directories: BTreeMap<&str, Directory> = BTreeMap::new();
    for (path, content) in files {
        let Some((directory, name)) = path.split_once('/') else { continue };
        let digest = add(&mut blobs, content.clone().into());
        let file = FileNode {
            name: name.to_owned(),
            digest: Some(digest::to_proto(&digest)),
            ..FileNode::default()
        };
        directories.entry(directory).or_default().files.push(file);
    }
    let mut root = Directory::default();
    for (name, mut directory) in directories {
        directory.files.sort_by(|a, b| a.name.cmp(&b.name));
        let digest = add(&mut blobs, directory.encode_to_vec().into());
        root.directories
            .push(DirectoryNode { name: name.to_owned(), digest: Some(digest::to_proto(&digest)) });
    }
    let arguments = command.iter().map(|argument| (*argument).to_owned()).collect();
    let command = Command { arguments, ..Command::default() };
    let command = add(&mut blobs, command.encode_to_vec().into());
    let root = add(&mut blobs, root.encode_to_vec().into());
    let action = Action {
        command_digest: Some(digest::to_proto(&command)),
        input_root_digest: Some(digest::to_proto(&root)),
        ..Action::default()
    };
    let action = add(&mut blobs, action.encode_to_vec().into());
    for batch in blobs.chunks(BATCH) {
        let digests: Vec<Digest> = batch.iter().map(|(digest, _)| *digest).collect();
        let missing: HashSet<Digest> = cas.find_missing("", &digests).await?.into_iter().collect();
        let lacking = batch.iter().filter(|(digest, _)| missing.contains(digest));
        cas.upload_many("", lacking.cloned().collect()).await?;
    }
    Ok(action)
}

fn add(blobs: &mut Vec<(Digest, Bytes)>, content: Bytes) -> Digest {
    let digest = Digest::of(DigestFunction::Sha256, &content);
    blobs.push((digest, content));
    digest
}
