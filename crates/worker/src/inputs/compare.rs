//! Compares a directory on disk with the directory of an input tree.
//!
//! An entry is right only if it cannot be distinguished from a newly created entry: a file is the file of the cache
//! itself, unchanged since it was added; a link has the right target; a directory has no other owner, mode or
//! attribute. Neither the behavior of the command nor the modification time of a directory proves anything.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};

use rustix::fs::FileType;
use rustix::io::Result;

use crate::cache::{Cache, Key};
use crate::dirfd::{Directory, kind};
use execution::Directory as Node;

/// For each entry of the node, in its order, whether it exists and is right. The entries of directories are not compared.
pub(super) struct Compared {
    pub files: Vec<bool>,
    pub directories: Vec<bool>,
    pub symlinks: Vec<bool>,
    /// The names of all other entries.
    pub wrong: HashSet<OsString>,
}

impl Compared {
    /// The comparison with an empty directory.
    pub(super) fn empty(node: &Node) -> Compared {
        Compared {
            files: vec![false; node.files.len()],
            directories: vec![false; node.directories.len()],
            symlinks: vec![false; node.symlinks.len()],
            wrong: HashSet::new(),
        }
    }
}

/// Blocking.
pub(super) fn compare(directory: &Directory, node: &Node, cache: &Cache) -> Result<Compared> {
    let mut wrong: HashSet<OsString> = directory.names()?.into_iter().collect();
    let mut check = |name: &str, is_right: &dyn Fn() -> bool| {
        let name = OsStr::new(name);
        wrong.contains(name) && is_right() && wrong.remove(name)
    };
    let files = node.files.iter().map(|file| {
        // The cache does not know a file with its own properties, which is a copy.
        check(&file.name, &|| {
            file.properties.is_none()
                && directory.stat(&file.name).is_ok_and(|found| cache.is_linked(&Key::from(file), &found))
        })
    });
    let files = files.collect();
    let directories = node.directories.iter().map(|(name, _)| {
        check(name, &|| directory.directory(name).and_then(|below| below.is_as_made()).unwrap_or(false))
    });
    let directories = directories.collect();
    let symlinks = node.symlinks.iter().map(|(name, target)| {
        check(name, &|| {
            directory.stat(name).is_ok_and(|found| kind(&found) == FileType::Symlink)
                && directory.link_target(name).is_ok_and(|found| found == **target)
        })
    });
    let symlinks = symlinks.collect();
    Ok(Compared { files, directories, symlinks, wrong })
}
