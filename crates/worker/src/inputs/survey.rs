//! Checks a tree after its command has ended: whether the contents are unchanged, and what must be removed before the
//! directory is used again.

use std::path::Path;
use std::rc::Rc;

use blobs::Digest;
use rustix::io::Errno;

use super::compare::compare;
use super::tree::Tree;
use crate::cache::{Cache, Key};
use crate::dirfd::Directory;
use crate::work_dir::Trash;

/// Returns the contents that are not in the tree as they were laid out, so that only the cache can show whether they are
/// unchanged. Moves out all other entries. If this fails, the directory must not be used again. Blocking.
pub(super) fn survey(
    tree: &Tree,
    cache: &Cache,
    root: &Path,
    trash: &mut Trash,
) -> std::io::Result<Vec<Key>> {
    let mut unproven = Vec::new();
    let Some(node) = tree.root() else { return Ok(unproven) };
    let mut rest = Vec::new();
    let mut next = Some((Rc::new(Directory::open(root)?), node));
    while let Some((directory, node)) = next {
        let compared = compare(&directory, node, cache)?;
        let files = node.files.iter().zip(&compared.files);
        unproven.extend(files.filter(|(_, is_right)| !**is_right).map(|(file, _)| Key::from(file)));
        for name in &compared.wrong {
            trash.take(&directory, name)?;
        }
        for ((name, digest), is_right) in node.directories.iter().zip(compared.directories) {
            if is_right {
                rest.push((directory.clone(), name, digest));
            } else {
                add_all(tree, digest, &mut unproven);
            }
        }
        next = match rest.pop() {
            None => None,
            Some((parent, name, digest)) => {
                let node = tree.directory(digest).ok_or(Errno::NOENT)?;
                Some((Rc::new(parent.directory(name)?), node))
            }
        };
    }
    Ok(unproven)
}

/// The contents of all files below a directory.
fn add_all(tree: &Tree, digest: &Digest, keys: &mut Vec<Key>) {
    let mut rest = vec![digest];
    while let Some(node) = rest.pop().and_then(|digest| tree.directory(digest)) {
        keys.extend(node.files.iter().map(Key::from));
        rest.extend(node.directories.iter().map(|(_, below)| below));
    }
}
