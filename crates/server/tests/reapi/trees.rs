//! Trees that no honest client makes (I8, I9, I12, X8), asked for with GetTree and with Execute. A worker that is given
//! one all the same refuses it too: `worker/tests/worker/actions/hostile.rs`.

use std::collections::HashSet;

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Action, Command, Digest, Directory, DirectoryNode, FileNode, GetTreeRequest, SymlinkNode,
};
use blobs::Blobs;
use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status};

use crate::support::{Served, ask, digest};

fn directory(name: &str, digest: &Digest) -> DirectoryNode {
    DirectoryNode { name: name.into(), digest: Some(digest.clone()) }
}

fn parent(children: &[(&str, &Digest)]) -> Directory {
    Directory {
        directories: children.iter().map(|(name, digest)| directory(name, digest)).collect(),
        ..Directory::default()
    }
}

/// Puts messages straight into the store: what is hostile about them is not how they came.
async fn put(served: &Served, messages: Vec<Vec<u8>>) {
    let tenant = blobs::Tenant::new("default").unwrap();
    for batch in messages.chunks(5_000) {
        let named = batch.iter().map(|bytes| {
            (blobs::Digest::of(blobs::DigestFunction::Sha256, bytes), Bytes::copy_from_slice(bytes))
        });
        assert!(served.blobs.put_many(&tenant, named.collect()).await.iter().all(Result::is_ok));
    }
}

/// What comes of an action with this input root.
async fn executed(served: &Served, root: &Digest) -> Result<(), Status> {
    let command = Command { arguments: vec!["true".into()], ..Command::default() }.encode_to_vec();
    let action = Action {
        command_digest: Some(digest(&command)),
        input_root_digest: Some(root.clone()),
        ..Action::default()
    };
    let action = action.encode_to_vec();
    served.upload(&[&command, &action]).await;
    served.execute(ask(&digest(&action))).await.map(drop)
}

/// The number of directories that GetTree sends.
async fn tree_directories(served: &Served, root: &Digest) -> Result<usize, Status> {
    let request = GetTreeRequest { root_digest: Some(root.clone()), ..GetTreeRequest::default() };
    let mut pages = served.cas().await.get_tree(request).await?.into_inner();
    let mut count = 0;
    while let Some(page) = pages.message().await? {
        count += page.directories.len();
    }
    Ok(count)
}

/// A chain of directories; its root.
async fn chain(served: &Served, length: usize) -> Digest {
    let mut messages = vec![Directory::default().encode_to_vec()];
    let mut below = digest(&messages[0]);
    for _ in 1..length {
        let message = parent(&[("d", &below)]).encode_to_vec();
        below = digest(&message);
        messages.push(message);
    }
    put(served, messages).await;
    below
}

#[tokio::test]
async fn i8_directories_with_hostile_names_are_refused_by_both() {
    let served = Served::start().await;
    let (x, empty) = (digest(b"x"), Directory::default().encode_to_vec());
    served.upload(&[b"x", &empty]).await;
    let file = |name: &str| FileNode { name: name.into(), digest: Some(x.clone()), ..FileNode::default() };
    let link = |name: &str| SymlinkNode { name: name.into(), target: "x".into(), ..SymlinkNode::default() };
    let below = |name: &str| directory(name, &digest(&empty));
    let long = "n".repeat(256);
    let mut hostile = Vec::new();
    for name in ["..", ".", "", "a/b", "/etc", "a\0b", "../../etc/cron.d/x", long.as_str()] {
        hostile.push(Directory { files: vec![file(name)], ..Directory::default() });
        hostile.push(Directory { directories: vec![below(name)], ..Directory::default() });
        hostile.push(Directory { symlinks: vec![link(name)], ..Directory::default() });
    }
    hostile.push(Directory { files: vec![file("b"), file("a")], ..Directory::default() });
    hostile.push(Directory { files: vec![file("a"), file("a")], ..Directory::default() });
    hostile.push(Directory { files: vec![file("a")], directories: vec![below("a")], ..Directory::default() });
    hostile.push(Directory { files: vec![file("a")], symlinks: vec![link("a")], ..Directory::default() });
    for one in hostile {
        let (bytes, shown) = (one.encode_to_vec(), format!("{one:?}"));
        // As the root, and one level below it.
        let outer = parent(&[("below", &digest(&bytes))]).encode_to_vec();
        served.upload(&[&bytes, &outer]).await;
        for root in [digest(&bytes), digest(&outer)] {
            assert_eq!(executed(&served, &root).await.unwrap_err().code(), Code::InvalidArgument, "{shown}");
            assert_eq!(
                tree_directories(&served, &root).await.unwrap_err().code(),
                Code::InvalidArgument,
                "{shown}"
            );
        }
    }
    assert_eq!(served.tasks().await, 0);
    served.stop().await;
}

/// Names that differ only in case or in how they are composed are different files on Linux, and are taken as such.
#[tokio::test]
async fn i8_names_that_collide_elsewhere_are_taken_as_they_are() {
    let served = Served::start().await;
    served.upload(&[b"x"]).await;
    let names = ["A", "a", "e\u{301}", "\u{e9}"];
    let files =
        names.map(|name| FileNode { name: name.into(), digest: Some(digest(b"x")), ..<_>::default() });
    let root = Directory { files: files.to_vec(), ..Directory::default() }.encode_to_vec();
    served.upload(&[&root]).await;
    executed(&served, &digest(&root)).await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn i9_deep_trees_are_told_without_recursion_and_not_executed() {
    let served = Served::start().await;
    let root = chain(&served, 100_000).await;
    assert_eq!(executed(&served, &root).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(tree_directories(&served, &root).await.unwrap(), 100_000);
    assert!(executed(&served, &chain(&served, 200).await).await.is_ok());
    served.stop().await;
}

#[tokio::test]
async fn i9_a_tree_of_too_many_directories_is_refused_by_both() {
    let served = Served::start().await;
    let root = chain(&served, 200_010).await;
    assert_eq!(tree_directories(&served, &root).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(executed(&served, &root).await.unwrap_err().code(), Code::InvalidArgument);
    served.stop().await;
}

/// Thirty directories with 2^30 paths, and a hundred that a worker would have to lay out ten million times.
#[tokio::test]
async fn i9_expansion_bombs_are_told_once_and_not_executed() {
    let served = Served::start().await;
    served.upload(&[b"x"]).await;
    let leaf = FileNode { name: "x".into(), digest: Some(digest(b"x")), ..FileNode::default() };
    for (levels, width) in [(30, 2), (4, 100)] {
        let message = Directory { files: vec![leaf.clone()], ..Directory::default() }.encode_to_vec();
        let mut below = digest(&message);
        let mut messages = vec![message];
        let names: Vec<String> = (0..width).map(|n| format!("{n:03}")).collect();
        for _ in 0..levels {
            let children: Vec<(&str, &Digest)> = names.iter().map(|name| (name.as_str(), &below)).collect();
            let message = parent(&children).encode_to_vec();
            below = digest(&message);
            messages.push(message);
        }
        let different = messages.iter().collect::<HashSet<_>>().len();
        put(&served, messages).await;
        assert_eq!(executed(&served, &below).await.unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(tree_directories(&served, &below).await.unwrap(), different);
    }
    assert_eq!(served.tasks().await, 0);
    served.stop().await;
}

/// Directories that say they have more bytes together than any tree may, and one that is larger than any directory: both are
/// refused by what their digests say, before anything is looked for.
#[tokio::test]
async fn a6_trees_and_directories_of_too_many_bytes_are_refused_by_both() {
    const LARGEST_BYTES: i64 = 4 * 1_024 * 1_024 - 64 * 1_024;
    let served = Served::start().await;
    let named = |n: usize, size_bytes: i64| Digest { size_bytes, ..digest(&n.to_le_bytes()) };
    let names: Vec<String> = (0..40).map(|n| format!("{n:02}")).collect();
    let digests: Vec<Digest> = (0..40).map(|n| named(n, LARGEST_BYTES)).collect();
    let children = |count: usize| {
        let children = names.iter().map(String::as_str).zip(&digests).take(count);
        parent(&children.collect::<Vec<_>>()).encode_to_vec()
    };
    let (fits, too_many) = (children(32), children(40));
    let too_large = parent(&[("d", &named(0, LARGEST_BYTES + 1))]).encode_to_vec();
    served.upload(&[&fits, &too_many, &too_large]).await;
    assert_eq!(executed(&served, &digest(&fits)).await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(tree_directories(&served, &digest(&fits)).await.unwrap(), 1, "what is missing is left out");
    for root in [digest(&too_many), digest(&too_large)] {
        assert_eq!(executed(&served, &root).await.unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(tree_directories(&served, &root).await.unwrap_err().code(), Code::InvalidArgument);
    }
    served.stop().await;
}
