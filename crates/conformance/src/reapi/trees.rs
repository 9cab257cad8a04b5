//! GetTree: a directory and all below it.

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Digest, Directory, DirectoryNode, GetTreeRequest,
};
use prost::Message;
use tonic::{Code, Status};

use super::client::Remote;
use super::content::{digest, random_hex, unknown_digest};
use crate::finding::must;
use crate::grpc::{format_status, refused};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R17"], "GetTree gives a directory and all below it, a shared one once", |s| {
        Box::pin(whole(s))
    }),
    Check::new(&["R17"], "GetTree goes on where a page token says", |s| Box::pin(pages(s))),
    Check::new(&["R17"], "GetTree leaves out what is missing, and a missing root is NOT_FOUND", |s| {
        Box::pin(gaps(s))
    }),
    Check::new(&["R17"], "a tree of 2^30 paths over 30 directories is told in 30 directories", |s| {
        Box::pin(shared(s))
    }),
];

/// A directory with directories in it; its own name makes it unlike any other.
pub(super) fn parent(children: &[(&str, &Digest)]) -> Directory {
    let node = |(name, digest): &(&str, &Digest)| DirectoryNode {
        name: (*name).to_owned(),
        digest: Some((*digest).clone()),
    };
    Directory { directories: children.iter().map(node).collect(), ..Directory::default() }
}

/// An empty directory below a name that nothing else has.
pub(super) async fn leaf(remote: &Remote<'_>) -> Result<Digest, Finding> {
    let empty = remote.put_one(&Directory::default().encode_to_vec()).await?;
    remote.put_one(&parent(&[(&random_hex(8)?, &empty)]).encode_to_vec()).await
}

async fn put(remote: &Remote<'_>, children: &[(&str, &Digest)]) -> Result<Digest, Finding> {
    remote.put_one(&parent(children).encode_to_vec()).await
}

struct Tree {
    directories: Vec<Digest>,
    /// The tokens of the pages that another one follows, with the directories that came before it.
    tokens: Vec<(usize, String)>,
}

async fn tree(remote: &Remote<'_>, root: &Digest, page_size: i32, page_token: &str) -> Result<Tree, Status> {
    let asked = GetTreeRequest {
        instance_name: remote.instance(),
        root_digest: Some(root.clone()),
        page_size,
        page_token: page_token.to_owned(),
        ..GetTreeRequest::default()
    };
    let mut stream = remote.cas().get_tree(remote.scoped(asked)).await?.into_inner();
    let mut tree = Tree { directories: Vec::new(), tokens: Vec::new() };
    while let Some(page) = stream.message().await? {
        tree.directories.extend(page.directories.iter().map(|one| digest(&one.encode_to_vec())));
        if !page.next_page_token.is_empty() {
            tree.tokens.push((tree.directories.len(), page.next_page_token));
        }
    }
    Ok(tree)
}

async fn must_tell(remote: &Remote<'_>, root: &Digest) -> Result<Tree, Finding> {
    let answer = tree(remote, root, 0, "").await;
    answer.map_err(|status| Finding::broken(format!("GetTree was refused: {}", format_status(&status))))
}

fn sorted(mut digests: Vec<Digest>) -> Vec<String> {
    digests.sort_by(|one, other| one.hash.cmp(&other.hash));
    digests.into_iter().map(|digest| digest.hash).collect()
}

async fn whole(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let shared = leaf(&remote).await?;
    let (left, right) =
        (put(&remote, &[("a", &shared), ("b", &shared)]).await?, put(&remote, &[("c", &shared)]).await?);
    let root = put(&remote, &[("left", &left), ("right", &right)]).await?;
    let answer = must_tell(&remote, &root).await?.directories;
    let empty = digest(&Directory::default().encode_to_vec());
    must(answer.first() == Some(&root), || "the root should come first".into())?;
    must(sorted(answer.clone()) == sorted(vec![root, left, right, shared, empty]), || {
        format!("five different directories were told as {}", answer.len())
    })
}

async fn pages(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let mut children = Vec::new();
    for _ in 0..8 {
        children.push(leaf(&remote).await?);
    }
    let names: Vec<String> = (0..children.len()).map(|n| format!("d{n}")).collect();
    let named: Vec<(&str, &Digest)> = names.iter().map(String::as_str).zip(&children).collect();
    let root = put(&remote, &named).await?;
    let all = must_tell(&remote, &root).await?.directories;
    must(all.len() == 10, || format!("ten different directories were told as {}", all.len()))?;
    let refused =
        |status: Status| Finding::broken(format!("GetTree was refused: {}", format_status(&status)));
    let first = tree(&remote, &root, 3, "").await.map_err(refused)?;
    let Some((before, token)) = first.tokens.first() else {
        return Err(Finding::Skipped("page_size 3 gave all of ten directories at once".into()));
    };
    let rest = tree(&remote, &root, 3, token).await.map_err(refused)?.directories;
    must(*before <= 3 && rest == all[*before..], || {
        format!("after a page of {before} of 10 directories came {}", rest.len())
    })
}

async fn gaps(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let (here, gone) = (leaf(&remote).await?, unknown_digest()?);
    let root = put(&remote, &[("gone", &gone), ("here", &here)]).await?;
    let answer = must_tell(&remote, &root).await?.directories;
    must(answer.len() == 3 && answer.contains(&here), || {
        format!("three directories are there beside one that is not, and {} were told", answer.len())
    })?;
    refused("GetTree of a root that is missing", tree(&remote, &gone, 0, "").await, &[Code::NotFound])
}

/// Thirty directories, each but the last with two entries that are one: 2^30 paths.
pub(super) async fn doubled(remote: &Remote<'_>) -> Result<Digest, Finding> {
    let mut below = put(remote, &[(&random_hex(8)?, &digest(b""))]).await?;
    for _ in 1..30 {
        below = put(remote, &[("a", &below), ("b", &below)]).await?;
    }
    Ok(below)
}

async fn shared(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    let root = doubled(&remote).await?;
    let answer = must_tell(&remote, &root).await?.directories;
    // The last one names the empty directory, whose digest is that of the empty blob.
    must((30..=31).contains(&answer.len()), || format!("{} directories were told", answer.len()))
}
