//! Lays an input tree out in a directory. Right entries stay, wrong entries are moved out, missing entries are
//! created. Every name was checked, each is used once in its directory, and directories are opened by handle, so that
//! nothing is written through a link (X9).

use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, Timespec, Timestamps, symlinkat, utimensat};

use super::compare::{Compared, compare};
use super::tree::Tree;
use crate::Failure;
use crate::cache::{Cache, Key};
use crate::dirfd::Directory;
use crate::work_dir::Trash;
use execution::{Directory as Node, FileNode};

/// Returns the contents that were evicted; then the layout is incomplete. Blocking.
pub(super) fn lay_out(
    tree: &Tree,
    cache: &Cache,
    into: &Path,
    trash: &mut Trash,
) -> Result<Vec<Key>, Failure> {
    let mut layout = Layout { cache, trash, evicted: Vec::new() };
    let Some(node) = tree.root() else { return Ok(layout.evicted) };
    let root = Rc::new(Directory::open(into).map_err(failed)?);
    let mut rest = Vec::new();
    // Only as many directories are open as a path has components.
    let mut next = Some((root, node, false));
    while let Some((directory, node, is_new)) = next {
        let compared =
            if is_new { Compared::empty(node) } else { compare(&directory, node, cache).map_err(failed)? };
        layout.directory(&directory, node, &compared)?;
        for ((name, digest), is_there) in node.directories.iter().zip(compared.directories) {
            rest.push((directory.clone(), name, digest, !is_there));
        }
        next = match rest.pop() {
            None => None,
            Some((parent, name, digest, is_new)) => {
                let node = tree.directory(digest).ok_or_else(|| Failure::missing_inputs(&[*digest]))?;
                Some((Rc::new(parent.directory(name).map_err(failed)?), node, is_new))
            }
        };
    }
    Ok(layout.evicted)
}

struct Layout<'a> {
    cache: &'a Cache,
    trash: &'a mut Trash,
    evicted: Vec<Key>,
}

impl Layout<'_> {
    /// Corrects a directory, without the entries of those in it.
    fn directory(&mut self, at: &Directory, node: &Node, compared: &Compared) -> Result<(), Failure> {
        for name in &compared.wrong {
            self.trash.take(at, name).map_err(|error| Failure::io("what was left of an attempt", error))?;
        }
        for file in lacking(&node.files, &compared.files) {
            self.file(at, file)?;
        }
        for (name, target) in lacking(&node.symlinks, &compared.symlinks) {
            symlinkat(target.as_str(), at, name.as_str()).map_err(failed)?;
        }
        for (name, _) in lacking(&node.directories, &compared.directories) {
            at.make(name).map_err(failed)?;
        }
        Ok(())
    }

    fn file(&mut self, at: &Directory, file: &FileNode) -> Result<(), Failure> {
        let is_there = match &file.properties {
            None => self.cache.link(&Key::from(file), at, &file.name),
            Some(_) => copy(file, self.cache, at),
        };
        match is_there {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.evicted.push(Key::from(file));
                Ok(())
            }
            Err(error) => Err(Failure::io(format!("the input {:?} could not be laid out", file.name), error)),
        }
    }
}

fn lacking<'a, T>(entries: &'a [T], are_there: &'a [bool]) -> impl Iterator<Item = &'a T> {
    entries.iter().zip(are_there).filter(|(_, is_there)| !**is_there).map(|(entry, _)| entry)
}

fn failed(error: rustix::io::Errno) -> Failure {
    Failure::io("the input tree could not be laid out", error)
}

/// A file with its own mode or time cannot be a link to the cache.
fn copy(file: &FileNode, cache: &Cache, directory: &Directory) -> std::io::Result<bool> {
    let Some(own) = &file.properties else { return Ok(false) };
    let default = if file.is_executable { 0o555 } else { 0o444 };
    if !cache.copy(&Key::from(file), directory, &file.name, own.unix_mode.unwrap_or(default))? {
        return Ok(false);
    }
    if let Some((seconds, nanos)) = own.mtime {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(directory, file.name.as_str(), &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(true)
}
