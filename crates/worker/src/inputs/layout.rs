//! Lays a tree out in an empty directory. Every name was checked, each is used once in its directory, and directories
//! are opened by handle, so that nothing is written through a link (X9).

use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, Timespec, Timestamps, symlinkat, utimensat};

use super::directory::{Directory as Node, FileNode};
use super::tree::Tree;
use crate::Failure;
use crate::beneath::Directory;
use crate::cache::{Cache, Key};

/// Blocking. Gives the contents that were not in the cache any more; then the layout is not complete.
pub fn lay_out(tree: &Tree, cache: &Cache, into: &Path) -> Result<Vec<Key>, Failure> {
    let failed = |error: rustix::io::Errno| Failure::io("the input tree could not be laid out", error);
    let mut gone = Vec::new();
    let Some(node) = tree.root() else { return Ok(gone) };
    let root = Rc::new(Directory::open(into).map_err(failed)?);
    let mut rest = vec![(root, node)];
    while let Some((directory, node)) = rest.pop() {
        files(node, cache, &directory, &mut gone)?;
        for (name, target) in &node.symlinks {
            symlinkat(target.as_str(), &*directory, name.as_str()).map_err(failed)?;
        }
        for (name, digest) in &node.directories {
            let below = directory.make(name).map_err(failed)?;
            if let Some(node) = tree.directory(digest).filter(|node| node.entries() > 0) {
                rest.push((Rc::new(below), node));
            }
        }
    }
    Ok(gone)
}

fn files(node: &Node, cache: &Cache, directory: &Directory, gone: &mut Vec<Key>) -> Result<(), Failure> {
    for file in &node.files {
        let is_there = match &file.own {
            None => cache.link(&file.key, directory, &file.name),
            Some(_) => copy(file, cache, directory),
        };
        match is_there {
            Ok(true) => {}
            Ok(false) => gone.push(file.key),
            Err(error) => {
                return Err(Failure::io(format!("the input {:?} could not be laid out", file.name), error));
            }
        }
    }
    Ok(())
}

/// A file with a mode or a time of its own cannot share its content with others.
fn copy(file: &FileNode, cache: &Cache, directory: &Directory) -> std::io::Result<bool> {
    let Some(own) = &file.own else { return Ok(false) };
    let default = if file.key.is_executable { 0o555 } else { 0o444 };
    match cache.copy(&file.key, directory, &file.name, own.unix_mode.unwrap_or(default)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        copied => copied?,
    }
    if let Some((seconds, nanos)) = own.modified {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(directory, file.name.as_str(), &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(true)
}
