//! A directory on disk beside what it should be.
//!
//! An entry is right only if it could not be told from one that was just laid out: a file is the very file of the cache,
//! unchanged since it came there; a link says what it should; a directory has no other owner, mode or attribute. Nothing
//! is concluded from what a command was seen to do or from when a directory was changed.

use std::ffi::OsString;

use rustix::fs::{FileType, Stat};
use rustix::io::Result;

use super::directory::{Directory as Node, Location};
use crate::cache::Cache;
use crate::dirfd::{Directory, kind};

pub struct Compared {
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
    pub fn empty(node: &Node) -> Compared {
        Compared {
            files: vec![false; node.files.len()],
            directories: vec![false; node.directories.len()],
            symlinks: vec![false; node.symlinks.len()],
            wrong: Vec::new(),
        }
    }
}

/// Blocking.
pub fn compare(directory: &Directory, node: &Node, cache: &Cache) -> Result<Compared> {
    let mut compared = Compared::empty(node);
    for name in directory.names()? {
        let is_right = match node.find(&name) {
            None => None,
            Some(Location::File(n)) => Some(&mut compared.files[n]).filter(|_| {
                let file = &node.files[n];
                // One with properties of its own is a copy, about which the cache knows nothing.
                file.own.is_none()
                    && directory.stat(&file.name).is_ok_and(|found| cache.is_linked(&file.key, &found))
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
