//! Compares a directory on disk with the directory of an input tree.
//!
//! An entry is right only if it cannot be distinguished from a newly created entry: a file is the file of the cache
//! itself, unchanged since it was added; a link has the right target; a directory has no other owner, mode or
//! attribute. Neither the behavior of the command nor the modification time of a directory proves anything.

use std::ffi::{OsStr, OsString};

use rustix::fs::{FileType, Stat};
use rustix::io::Result;

use crate::cache::{Cache, Key};
use crate::dirfd::{Directory, kind};
use execution::Directory as Node;

/// An entry of a directory: an index into one of its lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    File(usize),
    Directory(usize),
    Symlink(usize),
}

pub(super) struct Compared {
    /// For each entry of the node, in its order, whether it is there and right. Of directories, what is in them is not
    /// looked at.
    pub files: Vec<bool>,
    pub directories: Vec<bool>,
    pub symlinks: Vec<bool>,
    /// Names of all that is there and should not be, or not so.
    pub wrong: Vec<OsString>,
}

impl Compared {
    /// What a directory with nothing in it is.
    pub(super) fn empty(node: &Node) -> Compared {
        Compared {
            files: vec![false; node.files.len()],
            directories: vec![false; node.directories.len()],
            symlinks: vec![false; node.symlinks.len()],
            wrong: Vec::new(),
        }
    }
}

/// Blocking.
pub(super) fn compare(directory: &Directory, node: &Node, cache: &Cache) -> Result<Compared> {
    let mut compared = Compared::empty(node);
    for name in directory.names()? {
        let is_right = match find(node, &name) {
            None => None,
            Some(Location::File(n)) => Some(&mut compared.files[n]).filter(|_| {
                let file = &node.files[n];
                // One with properties of its own is a copy, about which the cache knows nothing.
                file.properties.is_none()
                    && directory.stat(&file.name).is_ok_and(|found| cache.is_linked(&Key::from(file), &found))
            }),
            Some(Location::Directory(n)) => {
                let below = directory.directory(&node.directories[n].0);
                let is_as_made = below.and_then(|below| below.is_as_made()).unwrap_or(false);
                Some(&mut compared.directories[n]).filter(|_| is_as_made)
            }
            Some(Location::Symlink(n)) => {
                let (name, target) = &node.symlinks[n];
                let is_link = |found: Stat| kind(&found) == FileType::Symlink;
                let is_right = directory.stat(name).is_ok_and(is_link)
                    && directory.link_target(name).is_ok_and(|found| found == **target);
                Some(&mut compared.symlinks[n]).filter(|_| is_right)
            }
        };
        match is_right {
            Some(is_right) => *is_right = true,
            None => compared.wrong.push(name),
        }
    }
    Ok(compared)
}

fn find(node: &Node, name: &OsStr) -> Option<Location> {
    let name = name.as_encoded_bytes();
    let file = node.files.binary_search_by(|file| file.name.as_bytes().cmp(name)).ok().map(Location::File);
    let in_directories = || node.directories.binary_search_by(|(own, _)| own.as_bytes().cmp(name)).ok();
    let in_symlinks = || node.symlinks.binary_search_by(|(own, _)| own.as_bytes().cmp(name)).ok();
    file.or_else(|| in_directories().map(Location::Directory))
        .or_else(|| in_symlinks().map(Location::Symlink))
}
