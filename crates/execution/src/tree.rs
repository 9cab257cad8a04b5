//! Reads directory trees level by level, within limits that hold before the directories are fetched.

use std::collections::HashSet;

use blobs::Digest;

use crate::limits::{MAX_DEPTH, MAX_DIRECTORIES, MAX_ENTRIES, MAX_TREE_BYTES};
use crate::tree_size::too_deep;
use crate::{Directory, InvalidMessage, TreeSize, fields};

const ROOT: u32 = 1;
const CHILDREN: u32 = 2;

/// The state of a walk over a tree. The caller fetches the directories of each level and adds them; directories that are
/// missing are not added. Each directory is read once, however often it is named.
#[derive(Debug)]
pub struct TreeReader {
    root: Digest,
    seen: HashSet<Digest>,
    next_level: Vec<Digest>,
    /// Of the current level.
    depth: usize,
    /// Of the directories of all levels so far.
    bytes: u64,
    size: TreeSize,
}

impl TreeReader {
    pub fn new(root: Digest) -> TreeReader {
        TreeReader {
            root,
            seen: HashSet::from([root]),
            next_level: vec![root],
            depth: 0,
            bytes: 0,
            size: TreeSize::default(),
        }
    }

    /// The directories to fetch and add next, and their depth below the root; none when the whole tree was read.
    pub fn next_level(&mut self) -> Result<Option<(usize, Vec<Digest>)>, InvalidMessage> {
        let level = std::mem::take(&mut self.next_level);
        if level.is_empty() {
            return Ok(None);
        }
        if self.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        self.bytes = level.iter().fold(self.bytes, |sum, directory| sum.saturating_add(directory.size));
        check_bounds(self.seen.len(), 0, self.bytes)?;
        self.depth += 1;
        Ok(Some((self.depth - 1, level)))
    }

    pub fn add(&mut self, digest: Digest, directory: &Directory) -> Result<(), InvalidMessage> {
        for (_, below) in &directory.directories {
            if self.seen.insert(*below) {
                self.next_level.push(*below);
            }
        }
        check_bounds(self.seen.len(), 0, self.bytes)?;
        self.size.add(digest, directory)
    }

    /// The digests of all directories, and the number of entries of the tree, each counted on every path to it.
    pub fn finish(self) -> Result<(HashSet<Digest>, u64), InvalidMessage> {
        let entries = self.size.check(&self.root)?;
        Ok((self.seen, entries))
    }
}

/// Keeps a walk over a tree from using too much memory. `bytes` is the size of the directory messages.
pub fn check_bounds(directories: usize, files: usize, bytes: u64) -> Result<(), InvalidMessage> {
    if directories > MAX_DIRECTORIES || files as u64 > MAX_ENTRIES || bytes > MAX_TREE_BYTES {
        return Err(InvalidMessage::new(format!(
            "a tree has at most {MAX_DIRECTORIES} directories of {MAX_TREE_BYTES} bytes together, and {MAX_ENTRIES} \
             different files"
        )));
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeDirectory<'a> {
    pub is_root: bool,
    pub encoded: &'a [u8],
}

/// The directories of a Tree message. They are not decoded together, because a few bytes may be many directories.
pub fn tree_directories<'a>(
    named: &Digest,
    bytes: &'a [u8],
) -> impl Iterator<Item = Result<TreeDirectory<'a>, InvalidMessage>> {
    let named = *named;
    fields::length_delimited(bytes).filter_map(move |field| match field {
        Some((number @ (ROOT | CHILDREN), encoded)) => {
            Some(Ok(TreeDirectory { is_root: number == ROOT, encoded }))
        }
        Some(_) => None,
        None => Some(Err(InvalidMessage::new(format!("{named} is not a tree of the Remote Execution API")))),
    })
}

#[cfg(test)]
mod tests {
    use blobs::DigestFunction::Sha256;

    use super::*;

    fn digest(n: usize) -> Digest {
        Digest::of(Sha256, n.to_string().as_bytes())
    }

    fn directory(below: &[usize]) -> Directory {
        let below = below.iter().map(|n| (n.to_string(), digest(*n)));
        Directory { directories: below.collect(), ..Directory::default() }
    }

    #[test]
    fn each_directory_is_read_once_on_its_first_level() {
        let mut reader = TreeReader::new(digest(0));
        assert_eq!(reader.next_level(), Ok(Some((0, vec![digest(0)]))));
        reader.add(digest(0), &directory(&[1, 2])).unwrap();
        assert_eq!(reader.next_level(), Ok(Some((1, vec![digest(1), digest(2)]))));
        reader.add(digest(1), &directory(&[2, 3])).unwrap();
        assert_eq!(reader.next_level(), Ok(Some((2, vec![digest(3)]))), "2 is missing, and 3 is new");
        assert_eq!(reader.next_level(), Ok(None));
        let (seen, entries) = reader.finish().unwrap();
        assert_eq!((seen.len(), entries), (4, 4));
    }

    #[test]
    fn i9_directories_that_would_fill_the_memory_are_refused_before_they_are_fetched() {
        let mut reader = TreeReader::new(digest(0));
        reader.next_level().unwrap();
        let large = |n| (format!("{n}"), Digest { size: MAX_TREE_BYTES / 4, ..digest(n) });
        let below = Directory { directories: (1..6).map(large).collect(), ..Directory::default() };
        reader.add(digest(0), &below).unwrap();
        assert!(reader.next_level().unwrap_err().to_string().contains("bytes"));
    }

    #[test]
    fn i9_a_tree_is_refused_at_the_first_level_that_is_too_deep() {
        let mut reader = TreeReader::new(digest(0));
        for n in 0..=MAX_DEPTH {
            assert!(reader.next_level().unwrap().is_some());
            reader.add(digest(n), &directory(&[n + 1])).unwrap();
        }
        assert!(reader.next_level().unwrap_err().to_string().contains("levels"));
    }
}
