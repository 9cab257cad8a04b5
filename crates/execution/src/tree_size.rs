//! Computes the size of a directory tree when it is created on disk (I9). A few directories that name each other many
//! times unfold to more than any disk holds; the size is computed without unfolding, with each directory visited once.

use std::collections::HashMap;

use blobs::Digest;

use crate::limits::{MAX_CONTENT_BYTES, MAX_DEPTH, MAX_ENTRIES};
use crate::{Directory, InvalidMessage};

#[derive(Debug, Default)]
pub struct TreeSize {
    directories: HashMap<Digest, Node>,
    /// Of all directories, each counted once.
    entries: u64,
}

/// A directory by itself.
#[derive(Debug)]
struct Node {
    entries: u64,
    bytes: u64,
    below: Vec<Digest>,
    /// How often other directories name it.
    references: usize,
}

/// The paths to a directory that were found so far, and the depth of the longest.
#[derive(Clone, Copy, Default)]
struct Paths {
    count: u64,
    depth: usize,
    references: usize,
}

impl TreeSize {
    pub fn add(&mut self, digest: Digest, directory: &Directory) -> Result<(), InvalidMessage> {
        let entries = directory.entries() as u64;
        let bytes = directory.files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.digest.size));
        let below = directory.directories.iter().map(|(_, digest)| *digest).collect();
        if self.directories.insert(digest, Node { entries, bytes, below, references: 0 }).is_none() {
            self.entries += entries;
        }
        if self.entries > MAX_ENTRIES { Err(too_large()) } else { Ok(()) }
    }

    /// The number of files, directories and links below `root`, each counted on every path to it. A tree that is too
    /// large or too deep is refused. Directories that were not added count as empty.
    pub fn check(mut self, root: &Digest) -> Result<u64, InvalidMessage> {
        let references: Vec<Digest> = self.directories.values().flat_map(|node| node.below.clone()).collect();
        for below in &references {
            if let Some(node) = self.directories.get_mut(below) {
                node.references += 1;
            }
        }
        let mut paths = HashMap::from([(*root, Paths { count: 1, ..Paths::default() })]);
        // A directory is visited after all directories that name it: digests cannot form a cycle.
        let mut ready = vec![*root];
        let (mut entries, mut bytes) = (0_u64, 0_u64);
        while let Some(digest) = ready.pop() {
            let (Some(node), Some(here)) = (self.directories.get(&digest), paths.get(&digest).copied())
            else {
                continue;
            };
            entries = entries.saturating_add(node.entries.saturating_mul(here.count));
            bytes = bytes.saturating_add(node.bytes.saturating_mul(here.count));
            for below in &node.below {
                let Some(child) = self.directories.get(below) else { continue };
                let paths = paths.entry(*below).or_default();
                paths.count = paths.count.saturating_add(here.count);
                paths.depth = paths.depth.max(here.depth + 1);
                paths.references += 1;
                if paths.depth > MAX_DEPTH {
                    return Err(too_deep());
                }
                if paths.references == child.references {
                    ready.push(*below);
                }
            }
        }
        if entries > MAX_ENTRIES || bytes > MAX_CONTENT_BYTES { Err(too_large()) } else { Ok(entries) }
    }
}

fn too_large() -> InvalidMessage {
    InvalidMessage::new(format!(
        "a tree has at most {MAX_ENTRIES} entries and {MAX_CONTENT_BYTES} bytes when it is laid out, each path counted"
    ))
}

pub(crate) fn too_deep() -> InvalidMessage {
    InvalidMessage::new(format!("a tree is at most {MAX_DEPTH} levels deep"))
}

#[cfg(test)]
mod tests {
    use blobs::DigestFunction::Sha256;

    use super::*;
    use crate::FileNode;

    fn digest(n: usize) -> Digest {
        Digest::of(Sha256, n.to_string().as_bytes())
    }

    fn directory(below: impl IntoIterator<Item = Digest>) -> Directory {
        let below = below.into_iter().enumerate().map(|(name, digest)| (name.to_string(), digest));
        Directory { directories: below.collect(), ..Directory::default() }
    }

    fn file(size: u64) -> FileNode {
        let digest = Digest { size, ..digest(0) };
        FileNode { name: "f".to_owned(), digest, is_executable: false, properties: None }
    }

    /// A chain of directories, each of which names the next one `width` times.
    fn chain(length: usize, width: usize) -> Result<u64, InvalidMessage> {
        let mut tree = TreeSize::default();
        for n in 0..length {
            let width = if n + 1 < length { width } else { 0 };
            tree.add(digest(n), &directory(vec![digest(n + 1); width])).unwrap();
        }
        tree.check(&digest(0))
    }

    #[test]
    fn i9_a_small_tree_that_unfolds_to_a_huge_one_is_refused() {
        assert!(chain(30, 2).unwrap_err().to_string().contains("laid out"));
        assert!(chain(200, 10).is_err());
        assert_eq!(chain(4, 3), Ok(3 + 9 + 27));
    }

    #[test]
    fn i9_the_longest_path_decides_how_deep_a_tree_is() {
        assert!(chain(MAX_DEPTH + 1, 1).is_ok());
        assert!(chain(MAX_DEPTH + 2, 1).unwrap_err().to_string().contains("levels"));
        assert!(chain(100_000, 1).is_err());
        // Every directory is also named by the root, so that a walk by levels finds only two levels.
        let mut tree = TreeSize::default();
        tree.add(digest(0), &directory((1..1_000).map(digest))).unwrap();
        for n in 1..1_000 {
            tree.add(digest(n), &directory([digest(n + 1)])).unwrap();
        }
        assert!(tree.check(&digest(0)).unwrap_err().to_string().contains("levels"));
    }

    #[test]
    fn i9_bytes_are_counted_on_every_path() {
        let mut tree = TreeSize::default();
        let leaf = Directory { files: vec![file(1 << 35)], ..Directory::default() };
        tree.add(digest(0), &directory(vec![digest(1); 100])).unwrap();
        tree.add(digest(1), &leaf).unwrap();
        assert!(tree.check(&digest(0)).is_err());
    }

    #[test]
    fn a6_a_tree_of_too_many_entries_is_refused_while_it_is_read() {
        let mut tree = TreeSize::default();
        let wide = Directory { files: (0..99_999).map(file).collect(), ..Directory::default() };
        assert!((0..10).all(|n| tree.add(digest(n), &wide).is_ok()));
        assert!(tree.add(digest(0), &wide).is_ok(), "the directory was counted before");
        assert!(tree.add(digest(10), &wide).unwrap_err().to_string().contains("entries"));
    }
}
