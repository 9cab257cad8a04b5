//! Checks that all outputs of a result are present, because a result with missing outputs must not be served (R26).

use std::collections::HashSet;

use blobs::{Digest, DigestFunction};
use execution::limits::{MAX_OUTPUT_ENTRIES, MAX_OUTPUT_TREE_BYTES};
use execution::{check_bounds, decode_proto, digest, tree_directories};
use tonic::Status;

use crate::reapi::messages::ActionResult;
use crate::reapi::store::Store;

/// Whether an output is missing. A result with more outputs than a tree may have is refused.
pub(crate) async fn is_any_missing(
    store: &Store,
    result: &ActionResult,
    function: DigestFunction,
) -> Result<bool, Status> {
    let needed = needed(store, result, function).await?;
    Ok(!store.missing(&needed).await?.is_empty())
}

/// The blobs that a result refers to, also those that its trees refer to as far as the trees are present.
pub(crate) async fn needed(
    store: &Store,
    result: &ActionResult,
    function: DigestFunction,
) -> Result<Vec<Digest>, Status> {
    let mut needed = HashSet::new();
    let files = result.output_files.iter().map(|file| file.digest.as_ref());
    let raw = [&result.stdout_digest, &result.stderr_digest].into_iter().flatten().map(Some);
    let roots = result.output_directories.iter().filter_map(|one| one.root_directory_digest.as_ref());
    for named in files.chain(raw).chain(roots.map(Some)) {
        needed.insert(digest::from_proto(named, function, "an output")?);
    }
    let mut trees = HashSet::new();
    for tree in result.output_directories.iter().filter_map(|one| one.tree_digest.as_ref()) {
        trees.insert(digest::from_proto(Some(tree), function, "an output directory")?);
    }
    let _permit = if trees.is_empty() { None } else { Some(store.walk().await?) };
    let bytes = trees.iter().fold(0_u64, |sum, tree| sum.saturating_add(tree.size));
    check_bounds(0, needed.len(), bytes)?;
    let mut followed = (0, needed);
    for tree in trees.iter().copied() {
        if let Some(bytes) = store.get(&tree, MAX_OUTPUT_TREE_BYTES).await? {
            let decode = move || {
                let (directories, needed) = &mut followed;
                follow(&tree, &bytes, directories, needed).map(|()| followed)
            };
            followed = store.limits.compute.run_on(tree.size as usize, decode).await??;
        }
    }
    let (_, mut needed) = followed;
    needed.extend(trees);
    Ok(needed.into_iter().collect())
}

/// Adds the files of a tree. Its directories are decoded one by one, because a few bytes may be many directories.
fn follow(
    tree: &Digest,
    bytes: &[u8],
    directories: &mut usize,
    needed: &mut HashSet<Digest>,
) -> Result<(), Status> {
    for directory in tree_directories(tree, bytes) {
        *directories += 1;
        for file in &decode_proto(tree, directory?.encoded, MAX_OUTPUT_ENTRIES)?.files {
            needed.insert(digest::from_proto(file.digest.as_ref(), tree.function, "an output")?);
        }
        check_bounds(*directories, needed.len(), 0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use blobs::Tenant;
    use execution::limits::MAX_TREE_BYTES;
    use prost::Message;

    use super::*;
    use crate::metrics::Metrics;
    use crate::reapi::concurrency::ConcurrencyLimits;
    use crate::reapi::messages::{self, Directory, FileNode, OutputDirectory, Tree};

    fn named(bytes: &[u8]) -> Digest {
        Digest::of(DigestFunction::Sha256, bytes)
    }

    fn followed(bytes: &[u8]) -> Result<HashSet<Digest>, Status> {
        let mut needed = HashSet::new();
        follow(&named(bytes), bytes, &mut 0, &mut needed)?;
        Ok(needed)
    }

    #[test]
    fn r26_the_files_of_a_tree_are_those_of_its_root_and_of_all_others() {
        let directory = |content: &[u8]| {
            let digest: messages::Digest = digest::to_proto(&named(content));
            let file = FileNode { name: "f".into(), digest: Some(digest), ..FileNode::default() };
            Directory { files: vec![file], ..Directory::default() }
        };
        let tree = Tree {
            root: Some(directory(b"root")),
            children: vec![directory(b"one"), directory(b"two"), directory(b"one")],
        };
        let expected = [&b"root"[..], b"one", b"two"].map(named);
        assert_eq!(followed(&tree.encode_to_vec()).unwrap(), HashSet::from(expected));
        assert!(followed(&[0xff; 20]).is_err());
    }

    fn result(trees: impl Iterator<Item = Digest>) -> ActionResult {
        let output = |tree| OutputDirectory { tree_digest: Some(digest::to_proto(&tree)), ..<_>::default() };
        ActionResult { output_directories: trees.map(output).collect(), ..ActionResult::default() }
    }

    #[tokio::test]
    async fn a6_a_tree_that_is_named_many_times_is_read_once_and_too_many_are_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let local = blobs::Store::open(directory.path().join("content"), blobs::Options::default()).unwrap();
        let metrics = Metrics::default();
        let (blobs, tenant) = (metrics.blobs(Arc::new(blobs::Local::new(local))), Tenant::new("t").unwrap());
        let child = Directory { files: vec![], ..Directory::default() };
        let tree = Tree { root: Some(child.clone()), children: vec![child; 500] }.encode_to_vec();
        assert!(blobs.put_many(&tenant, vec![(named(&tree), tree.clone().into())]).await[0].is_ok());
        let store = Store { blobs, tenant, limits: ConcurrencyLimits::default() };
        let many = result((0..40_000).map(|_| named(&tree)));
        assert!(!is_any_missing(&store, &many, DigestFunction::Sha256).await.unwrap());
        assert_eq!(metrics.content_read(), tree.len() as u64);
        let large = |n: u64| Digest { size: MAX_OUTPUT_TREE_BYTES, ..named(&n.to_le_bytes()) };
        let fits = MAX_TREE_BYTES / MAX_OUTPUT_TREE_BYTES;
        assert!(is_any_missing(&store, &result((0..fits).map(large)), DigestFunction::Sha256).await.unwrap());
        let refused = is_any_missing(&store, &result((0..=fits).map(large)), DigestFunction::Sha256).await;
        assert!(refused.unwrap_err().message().contains("at most"));
    }

    /// A tree may have megabytes, which took the thread of a connection as long as they took to decode.
    #[tokio::test]
    async fn a6_a_large_tree_is_not_decoded_where_connections_are_served() {
        let directory = tempfile::tempdir().unwrap();
        let local = blobs::Store::open(directory.path().join("content"), blobs::Options::default()).unwrap();
        let (blobs, tenant) = (Arc::new(blobs::Local::new(local)), Tenant::new("t").unwrap());
        let limits = ConcurrencyLimits::default();
        limits.compute.close();
        let store = Store { blobs, tenant, limits };
        for (files, is_handed_over) in [(1, false), (4_000, true)] {
            let file = |n: usize| {
                let digest = Some(digest::to_proto(&named(&n.to_le_bytes())));
                FileNode { name: n.to_string(), digest, ..FileNode::default() }
            };
            let root = Directory { files: (0..files).map(file).collect(), ..Directory::default() };
            let tree = Tree { root: Some(root), children: Vec::new() }.encode_to_vec();
            let put = store.blobs.put_many(&store.tenant, vec![(named(&tree), tree.clone().into())]).await;
            assert!(put[0].is_ok());
            let result = result([named(&tree)].into_iter());
            let needed = needed(&store, &result, DigestFunction::Sha256).await;
            assert_eq!(needed.is_err(), is_handed_over, "{} bytes", tree.len());
        }
    }

    /// Two bytes are a directory, which takes more than a hundred once it is decoded.
    #[test]
    fn a6_a_tree_of_millions_of_empty_directories_is_refused() {
        let refused = followed(&[0x12, 0].repeat(1_000_000)).unwrap_err();
        assert!(refused.message().contains("at most"), "{}", refused.message());
    }
}
