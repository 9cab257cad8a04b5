//! An input tree as far as it is known, and what bounds it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use blobs::Digest;

use super::directory::Directory;
use super::keys;
use crate::Failure;
use crate::cache::Key;
use crate::names::stays_within;

/// Most files, directories and links in a tree, each counted as often as it is laid out (I9).
const MAX_ENTRIES: u64 = 1_000_000;
/// Most bytes of directories, each counted once: far more than as many entries with ordinary names have.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// Deepest directory.
const MAX_DEPTH: usize = 256;

#[derive(Debug)]
pub struct Tree {
    root: Digest,
    known: HashMap<Digest, Arc<Directory>>,
    seen: HashSet<Digest>,
    unseen: Vec<Digest>,
    files: Vec<Key>,
    bytes: u64,
    entries: u64,
}

impl Tree {
    pub fn new(root: Digest) -> Tree {
        Tree {
            root,
            known: HashMap::new(),
            seen: HashSet::from([root]),
            unseen: vec![root],
            files: Vec::new(),
            bytes: 0,
            entries: 0,
        }
    }

    pub fn root_digest(&self) -> &Digest {
        &self.root
    }

    /// Files, directories and links, each counted as often as it is laid out. Known once the tree is checked.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    pub fn root(&self) -> Option<&Arc<Directory>> {
        self.known.get(&self.root)
    }

    pub fn directory(&self, digest: &Digest) -> Option<&Arc<Directory>> {
        self.known.get(digest)
    }

    /// The contents of all files, once each.
    pub fn files(&self) -> &[Key] {
        &self.files
    }

    /// Directories that were named and not looked at yet.
    pub fn take_unseen(&mut self) -> Vec<Digest> {
        std::mem::take(&mut self.unseen)
    }

    /// Whether nothing is left to be looked at.
    pub fn is_known(&self) -> bool {
        self.unseen.is_empty()
    }

    pub fn add(&mut self, digest: Digest, directory: Arc<Directory>) -> Result<(), Failure> {
        for (_, below) in &directory.directories {
            if self.seen.insert(*below) {
                self.unseen.push(*below);
            }
        }
        if self.known.insert(digest, directory).is_none() {
            self.bytes = self.bytes.saturating_add(digest.size);
        }
        if self.seen.len() as u64 > MAX_ENTRIES {
            return Err(too_large());
        }
        if self.bytes > MAX_BYTES {
            let message = format!("the directories of the input tree have more than {MAX_BYTES} bytes");
            return Err(Failure::invalid_action(message));
        }
        Ok(())
    }

    /// Checks the tree as a whole, once all of it is known but what is missing: how large it is when it is laid out,
    /// how deep, and where its links point.
    pub fn check(&mut self, allow_absolute_symlinks: bool) -> Result<(), Failure> {
        // Directories that are met again at the same depth were counted and checked before. There are at most as many
        // depths as levels, so that a small tree which refers to itself many times is not walked as often.
        let mut counts: HashMap<(Digest, usize), u64> = HashMap::new();
        let mut walk = vec![(self.root, 0, false)];
        let mut met = 0;
        while let Some((digest, depth, is_done_below)) = walk.pop() {
            if counts.contains_key(&(digest, depth)) {
                continue;
            }
            let Some(directory) = self.known.get(&digest) else { continue };
            if depth > MAX_DEPTH {
                return Err(Failure::invalid_action("the input tree is too deep"));
            }
            if !is_done_below {
                met += directory.entries() as u64;
                if met > MAX_ENTRIES {
                    return Err(too_large());
                }
                walk.push((digest, depth, true));
                walk.extend(directory.directories.iter().map(|(_, below)| (*below, depth + 1, false)));
                continue;
            }
            for (name, target) in &directory.symlinks {
                if !allow_absolute_symlinks && !stays_within(target, depth) {
                    let message =
                        format!("the symbolic link {name:?} points out of the input root, to {target:?}");
                    return Err(Failure::invalid_action(message));
                }
            }
            let below = directory.directories.iter();
            let below = below.map(|(_, below)| counts.get(&(*below, depth + 1)).copied().unwrap_or(0));
            let count = below.fold(directory.entries() as u64, u64::saturating_add);
            if count > MAX_ENTRIES {
                return Err(too_large());
            }
            counts.insert((digest, depth), count);
        }
        self.entries = counts.get(&(self.root, 0)).copied().unwrap_or(0);
        let files = self.known.values().flat_map(|directory| &directory.files);
        self.files = keys(files.map(|file| file.key));
        Ok(())
    }

    /// A file with this content, for people.
    pub fn name_of(&self, key: &Key) -> Option<&str> {
        let mut files = self.known.values().flat_map(|directory| &directory.files);
        files.find(|file| file.key == *key).map(|file| file.name.as_str())
    }
}

fn too_large() -> Failure {
    Failure::invalid_action(format!("the input tree has more than {MAX_ENTRIES} entries"))
}

#[cfg(test)]
mod tests {
    use blobs::DigestFunction::Sha256;

    use super::*;

    fn digest(n: usize) -> Digest {
        Digest::of(Sha256, n.to_string().as_bytes())
    }

    /// A chain of directories, each of which names the next one so often.
    fn chain(length: usize, width: usize) -> Tree {
        let mut tree = Tree::new(digest(0));
        for n in 0..length {
            let below = (0..width).map(|name| (name.to_string(), digest(n + 1)));
            let directories = if n + 1 < length { below.collect() } else { Vec::new() };
            tree.add(digest(n), Arc::new(Directory { directories, ..Directory::default() })).unwrap();
        }
        tree
    }

    #[test]
    fn i9_a_small_tree_that_unfolds_to_a_huge_one_is_refused_at_once() {
        assert!(chain(200, 10).check(false).unwrap_err().message.contains("entries"));
        assert!(chain(3, 10).check(false).is_ok());
    }

    #[test]
    fn i9_a_tree_that_is_too_deep_is_refused() {
        assert!(chain(100_000, 1).check(false).unwrap_err().message.contains("deep"));
    }

    #[test]
    fn i9_a_tree_whose_directories_would_fill_the_memory_is_refused_while_it_is_found_out() {
        let mut tree = Tree::new(digest(0));
        let mut add = |n| tree.add(Digest { size: MAX_BYTES / 4, ..digest(n) }, Arc::default());
        assert!((0..4).all(|n| add(n).is_ok()));
        assert!(add(0).is_ok(), "it is known already");
        assert!(add(4).unwrap_err().message.contains("bytes"));
    }

    #[test]
    fn r49_a_link_out_of_the_root_is_refused_unless_it_is_allowed() {
        let with_link = |target: &str| {
            let mut tree = Tree::new(digest(0));
            let symlinks = vec![("link".to_owned(), target.to_owned())];
            tree.add(digest(0), Arc::new(Directory { symlinks, ..Directory::default() })).unwrap();
            tree
        };
        for target in ["/etc/passwd", "../x", "a/../../x"] {
            assert_eq!(with_link(target).check(false).unwrap_err().code, Failure::INVALID_ACTION);
            assert!(with_link(target).check(true).is_ok());
        }
        assert!(with_link("nowhere/at/all").check(false).is_ok(), "dangling is fine");
    }
}
