//! What an input tree becomes when it is laid out (I9). A few directories that name each other many times unfold to more
//! than any disk holds; this counts without unfolding, each directory once.

use std::collections::HashMap;

use blobs::Digest;
use tonic::Status;

use crate::reapi::messages::Directory;

/// Deepest directory below the root, as far as a worker goes.
pub const MAX_DEPTH: usize = 256;
/// Most files, directories and links, each counted as often as it is laid out.
const MAX_ENTRIES: u64 = 1_000_000;
/// Most bytes of files, each counted as often as it is laid out.
const MAX_BYTES: u64 = 1 << 40;

#[derive(Default)]
pub struct TreeSize {
    directories: HashMap<Digest, Node>,
    /// Of all directories, each counted once.
    entries: u64,
}

/// A directory by itself.
struct Node {
    entries: u64,
    bytes: u64,
    below: Vec<Digest>,
    /// How often other directories name it.
    named: usize,
}

/// Where a directory stands in the tree: on so many paths, the longest of which has so many steps.
#[derive(Clone, Copy, Default)]
struct PathCount {
    paths: u64,
    depth: usize,
    seen: usize,
}

impl TreeSize {
    /// Takes in a directory; `below` are the directories in it, in order.
    pub fn add(
        &mut self,
        digest: Digest,
        directory: &Directory,
        file_bytes: u64,
        below: Vec<Digest>,
    ) -> Result<(), Status> {
        let entries = (directory.files.len() + directory.directories.len() + directory.symlinks.len()) as u64;
        self.directories.insert(digest, Node { entries, bytes: file_bytes, below, named: 0 });
        self.entries += entries;
        if self.entries > MAX_ENTRIES { Err(too_large()) } else { Ok(()) }
    }

    /// Whether the tree below `root` is one that can be laid out. What was not taken in is left out.
    pub fn check(mut self, root: &Digest) -> Result<(), Status> {
        let edges: Vec<Digest> = self.directories.values().flat_map(|node| node.below.clone()).collect();
        for below in &edges {
            if let Some(node) = self.directories.get_mut(below) {
                node.named += 1;
            }
        }
        let mut path_counts = HashMap::from([(*root, PathCount { paths: 1, ..PathCount::default() })]);
        // A directory's turn comes after that of all which name it: digests cannot go round in a circle.
        let mut ready = vec![*root];
        let (mut entries, mut bytes) = (0_u64, 0_u64);
        while let Some(digest) = ready.pop() {
            let (Some(node), Some(here)) = (self.directories.get(&digest), path_counts.get(&digest).copied())
            else {
                continue;
            };
            entries = entries.saturating_add(node.entries.saturating_mul(here.paths));
            bytes = bytes.saturating_add(node.bytes.saturating_mul(here.paths));
            for below in &node.below {
                let Some(named) = self.directories.get(below).map(|node| node.named) else { continue };
                let count = path_counts.entry(*below).or_default();
                count.paths = count.paths.saturating_add(here.paths);
                count.depth = count.depth.max(here.depth + 1);
                count.seen += 1;
                if count.depth > MAX_DEPTH {
                    return Err(too_deep());
                }
                if count.seen == named {
                    ready.push(*below);
                }
            }
        }
        if entries > MAX_ENTRIES || bytes > MAX_BYTES { Err(too_large()) } else { Ok(()) }
    }
}

fn too_large() -> Status {
    Status::invalid_argument(format!(
        "an input tree has at most {MAX_ENTRIES} entries and {MAX_BYTES} bytes when it is laid out, each path counted"
    ))
}

pub fn too_deep() -> Status {
    Status::invalid_argument(format!("an input tree has at most {MAX_DEPTH} levels"))
}

#[cfg(test)]
mod tests {
    use blobs::DigestFunction::Sha256;

    use super::*;
    use crate::reapi::messages::{DirectoryNode, FileNode};

    fn digest(n: usize) -> Digest {
        Digest::of(Sha256, n.to_string().as_bytes())
    }

    /// A chain of directories, each of which names the next one so often.
    fn chain(length: usize, width: usize) -> Result<(), Status> {
        let mut tree = TreeSize::default();
        for n in 0..length {
            let width = if n + 1 < length { width } else { 0 };
            let directory =
                Directory { directories: vec![DirectoryNode::default(); width], ..<_>::default() };
            tree.add(digest(n), &directory, 0, vec![digest(n + 1); width]).unwrap();
        }
        tree.check(&digest(0))
    }

    #[test]
    fn i9_a_small_tree_that_unfolds_to_a_huge_one_is_refused() {
        assert!(chain(30, 2).unwrap_err().message().contains("laid out"));
        assert!(chain(200, 10).is_err());
        assert!(chain(10, 3).is_ok());
    }

    #[test]
    fn i9_the_longest_path_is_what_is_deep() {
        assert!(chain(MAX_DEPTH + 1, 1).is_ok());
        assert!(chain(MAX_DEPTH + 2, 1).unwrap_err().message().contains("levels"));
        // Every directory is also named by the root, so that a look at levels alone finds one level.
        let mut tree = TreeSize::default();
        let all: Vec<Digest> = (1..1_000).map(digest).collect();
        tree.add(digest(0), &Directory::default(), 0, all).unwrap();
        for n in 1..1_000 {
            tree.add(digest(n), &Directory::default(), 0, vec![digest(n + 1)]).unwrap();
        }
        assert!(tree.check(&digest(0)).unwrap_err().message().contains("levels"));
    }

    #[test]
    fn i9_bytes_are_counted_on_every_path() {
        let mut tree = TreeSize::default();
        let leaf = Directory { files: vec![FileNode::default()], ..Directory::default() };
        tree.add(digest(0), &Directory::default(), 0, vec![digest(1); 100]).unwrap();
        tree.add(digest(1), &leaf, 1 << 35, Vec::new()).unwrap();
        assert!(tree.check(&digest(0)).is_err());
    }

    #[test]
    fn a6_a_tree_of_too_many_entries_is_refused_while_it_is_read() {
        let mut tree = TreeSize::default();
        let wide = Directory { files: vec![FileNode::default(); 99_999], ..Directory::default() };
        assert!((0..10).all(|n| tree.add(digest(n), &wide, 0, Vec::new()).is_ok()));
        assert!(tree.add(digest(10), &wide, 0, Vec::new()).unwrap_err().message().contains("entries"));
    }
}
