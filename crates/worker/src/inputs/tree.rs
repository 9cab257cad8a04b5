//! An input tree in memory: all of its directories, once each.

use std::collections::HashMap;
use std::sync::Arc;

use blobs::Digest;
use execution::{Directory, TreeReader, stays_within};

use crate::Failure;
use crate::cache::Key;

#[derive(Debug)]
pub(crate) struct Tree {
    root: Digest,
    directories: HashMap<Digest, Arc<Directory>>,
    files: Vec<Key>,
    entries: u64,
}

impl Tree {
    pub(crate) fn root_digest(&self) -> &Digest {
        &self.root
    }

    /// Files, directories and links, each counted on every path to it.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    pub(crate) fn root(&self) -> Option<&Arc<Directory>> {
        self.directories.get(&self.root)
    }

    pub(crate) fn directory(&self, digest: &Digest) -> Option<&Arc<Directory>> {
        self.directories.get(digest)
    }

    /// The contents of all files, sorted, once each.
    pub(crate) fn files(&self) -> &[Key] {
        &self.files
    }

    /// The name of a file with this content, for error messages.
    pub(crate) fn name_of(&self, key: &Key) -> Option<&str> {
        let mut files = self.directories.values().flat_map(|directory| &directory.files);
        files.find(|file| Key::from(*file) == *key).map(|file| file.name.as_str())
    }
}

/// Collects the directories of a tree, and checks its links. The limits are those of every tree.
pub(crate) struct TreeBuilder {
    root: Digest,
    reader: TreeReader,
    directories: HashMap<Digest, Arc<Directory>>,
    /// Of the current level. A directory is added on its first level, where its links are closest to the root.
    depth: usize,
    allow_absolute_symlinks: bool,
}

impl TreeBuilder {
    pub(crate) fn new(root: Digest, allow_absolute_symlinks: bool) -> TreeBuilder {
        let reader = TreeReader::new(root);
        TreeBuilder { root, reader, directories: HashMap::new(), depth: 0, allow_absolute_symlinks }
    }

    /// The directories to add next; none when the tree is complete.
    pub(crate) fn next_level(&mut self) -> Result<Option<Vec<Digest>>, Failure> {
        let Some((depth, level)) = self.reader.next_level()? else { return Ok(None) };
        self.depth = depth;
        Ok(Some(level))
    }

    pub(crate) fn add(&mut self, digest: Digest, directory: Arc<Directory>) -> Result<(), Failure> {
        let leaves = |(_, target): &&(String, String)| !stays_within(target, self.depth);
        if !self.allow_absolute_symlinks
            && let Some((name, target)) = directory.symlinks.iter().find(leaves)
        {
            let message = format!("the symbolic link {name:?} points out of the input root, to {target:?}");
            return Err(Failure::invalid_action(message));
        }
        self.reader.add(digest, &directory)?;
        self.directories.insert(digest, directory);
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<Tree, Failure> {
        let (_, entries) = self.reader.finish()?;
        let files = self.directories.values().flat_map(|directory| &directory.files);
        let mut files: Vec<Key> = files.map(Key::from).collect();
        files.sort_unstable();
        files.dedup();
        Ok(Tree { root: self.root, directories: self.directories, files, entries })
    }
}

#[cfg(test)]
mod tests {
    use blobs::DigestFunction::Sha256;

    use super::*;

    fn digest(n: usize) -> Digest {
        Digest::of(Sha256, n.to_string().as_bytes())
    }

    fn with_link(target: &str, allow_absolute_symlinks: bool) -> Result<(), Failure> {
        let mut tree = TreeBuilder::new(digest(0), allow_absolute_symlinks);
        let symlinks = vec![("link".to_owned(), target.to_owned())];
        tree.next_level().unwrap();
        tree.add(digest(0), Arc::new(Directory { symlinks, ..Directory::default() }))
    }

    #[test]
    fn r49_a_link_out_of_the_root_is_refused_unless_it_is_allowed() {
        for target in ["/etc/passwd", "../x", "a/../../x"] {
            assert_eq!(with_link(target, false).unwrap_err().code, Failure::INVALID_ACTION);
            assert!(with_link(target, true).is_ok());
        }
        assert!(with_link("nowhere/at/all", false).is_ok(), "dangling is fine");
    }

    /// The directory is named on two levels; on the first one its link leads out of the root.
    #[test]
    fn r49_a_link_is_checked_where_its_directory_is_closest_to_the_root() {
        let below = |names: &[usize]| {
            let directories = names.iter().map(|n| (n.to_string(), digest(*n))).collect();
            Arc::new(Directory { directories, ..Directory::default() })
        };
        let mut tree = TreeBuilder::new(digest(0), false);
        tree.next_level().unwrap();
        tree.add(digest(0), below(&[1, 2])).unwrap();
        assert_eq!(tree.next_level().unwrap(), Some(vec![digest(1), digest(2)]));
        tree.add(digest(1), below(&[2])).unwrap();
        let symlinks = vec![("link".to_owned(), "../../x".to_owned())];
        let linked = Arc::new(Directory { symlinks, ..Directory::default() });
        assert!(tree.add(digest(2), linked).is_err());
    }
}
