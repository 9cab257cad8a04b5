//! What a result says there is, checked: every path was asked for or lies below one that was, every name is one path
//! component, and a small tree that unfolds to a huge one is refused.

use std::collections::HashMap;

use bazel_remote_apis::build::bazel::remote::execution::v2::{ActionResult, Directory, Tree};
use blobs::Digest;
use prost::Message;
use serde::Serialize;
use worker::names::{RelativePath, component};

use super::error::Error;
use super::fetch::{self, read_digest};
use super::inputs::FUNCTION;
use super::remote::Remote;

/// Most files, directories and links.
const MAX_ENTRIES: usize = 1_000_000;
/// Deepest directory of an output.
const MAX_DEPTH: usize = 256;
/// Largest description of a directory.
const MAX_TREE_BYTES: u64 = 256 << 20;

/// One thing to be written.
#[derive(Clone, Debug)]
pub enum Entry {
    File { path: RelativePath, digest: Digest, is_executable: bool },
    Directory { path: RelativePath },
    Link { path: RelativePath, target: String },
}

/// One output as it was asked for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    pub path: String,
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

#[derive(Default)]
pub struct Outputs {
    pub entries: Vec<Entry>,
    pub told: Vec<Output>,
    /// Those that were asked for and are not there.
    pub missing: Vec<String>,
}

impl Outputs {
    #[allow(deprecated, reason = "some servers tell links only there")]
    pub async fn read(
        remote: &Remote,
        result: &ActionResult,
        asked: &[RelativePath],
    ) -> Result<Outputs, Error> {
        let mut outputs = Outputs::default();
        let mut missing: Vec<&RelativePath> = asked.iter().collect();
        let mut expect = |text: &str| {
            let path = asked.iter().find(|path| path.components().join("/") == text);
            let path =
                path.ok_or_else(|| Error::output(text, "the server names it, but nobody asked for it"))?;
            missing.retain(|other| *other != path);
            Ok::<RelativePath, Error>(path.clone())
        };
        for file in &result.output_files {
            let path = expect(&file.path)?;
            let digest = read_digest(file.digest.as_ref(), &file.path)?;
            outputs.tell(&file.path, "file", Some(digest));
            outputs.entries.push(Entry::File { path, digest, is_executable: file.is_executable });
        }
        for directory in &result.output_directories {
            let path = expect(&directory.path)?;
            let digest = read_digest(directory.tree_digest.as_ref(), &directory.path)?;
            outputs.tell(&directory.path, "directory", Some(digest));
            let content = fetch::whole(remote, digest, MAX_TREE_BYTES).await?;
            outputs.unfold(path, &content)?;
        }
        let links =
            [&result.output_symlinks, &result.output_file_symlinks, &result.output_directory_symlinks];
        for link in links.into_iter().flatten() {
            let path = expect(&link.path)?;
            if !outputs.told.iter().any(|output| output.path == link.path) {
                outputs.tell(&link.path, "symlink", None);
                outputs.entries.push(checked_link(path, &link.target)?);
            }
        }
        outputs.missing = missing.into_iter().map(|path| path.components().join("/")).collect();
        outputs.missing.dedup();
        Ok(outputs)
    }

    pub fn bytes(&self) -> u64 {
        let size = |entry: &Entry| match entry {
            Entry::File { digest, .. } => digest.size,
            _ => 0,
        };
        self.entries.iter().map(size).sum()
    }

    fn tell(&mut self, path: &str, kind: &'static str, digest: Option<Digest>) {
        let digest = digest.map(|digest| digest.to_string());
        self.told.push(Output { path: path.to_owned(), kind, digest });
    }

    /// Each directory before what is in it.
    fn unfold(&mut self, path: RelativePath, content: &[u8]) -> Result<(), Error> {
        let shown = path.components().join("/");
        let bad = |why: String| Error::output(&shown, why);
        let tree = Tree::decode(content).map_err(|error| bad(error.to_string()))?;
        let of = |directory: &Directory| Digest::of(FUNCTION, &directory.encode_to_vec());
        let known: HashMap<Digest, &Directory> =
            tree.children.iter().map(|directory| (of(directory), directory)).collect();
        let root = tree.root.unwrap_or_default();
        let mut rest = vec![(path.clone(), &root)];
        while let Some((at, directory)) = rest.pop() {
            if at.components().len() > path.components().len() + MAX_DEPTH {
                return Err(bad(format!("it is deeper than {MAX_DEPTH} directories")));
            }
            self.entries.push(Entry::Directory { path: at.clone() });
            let below = |name: &str| match component(name) {
                Ok(_) => RelativePath::parse(name).map(|name| at.join(&name)).map_err(|why| why.to_string()),
                Err(why) => Err(format!("the name {name:?} in it {why}")),
            };
            for file in &directory.files {
                let digest = read_digest(file.digest.as_ref(), &file.name)?;
                let (path, is_executable) = (below(&file.name).map_err(bad)?, file.is_executable);
                self.entries.push(Entry::File { path, digest, is_executable });
            }
            for link in &directory.symlinks {
                self.entries.push(checked_link(below(&link.name).map_err(bad)?, &link.target)?);
            }
            for node in &directory.directories {
                let digest = read_digest(node.digest.as_ref(), &node.name)?;
                let directory = known.get(&digest).ok_or_else(|| bad(format!("it lacks {}", node.name)))?;
                rest.push((below(&node.name).map_err(bad)?, directory));
            }
            if self.entries.len() + rest.len() > MAX_ENTRIES {
                return Err(bad(format!("it has more than {MAX_ENTRIES} entries")));
            }
        }
        Ok(())
    }
}

fn checked_link(path: RelativePath, target: &str) -> Result<Entry, Error> {
    match target.is_empty() || target.contains('\0') {
        true => Err(Error::output(path.components().join("/"), "the link points nowhere")),
        false => Ok(Entry::Link { path, target: target.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use bazel_remote_apis::build::bazel::remote::execution::v2::{DirectoryNode, FileNode, SymlinkNode};

    use super::*;

    fn told(content: &[u8]) -> Option<bazel_remote_apis::build::bazel::remote::execution::v2::Digest> {
        Some(worker::digest::told(&Digest::of(FUNCTION, content)))
    }

    fn unfold(root: Directory, children: Vec<Directory>) -> Result<Outputs, Error> {
        let mut outputs = Outputs::default();
        let tree = Tree { root: Some(root), children }.encode_to_vec();
        outputs.unfold(RelativePath::parse("out").unwrap(), &tree).map(|()| outputs)
    }

    fn file(name: &str) -> FileNode {
        FileNode { name: name.to_owned(), digest: told(b"x"), ..FileNode::default() }
    }

    #[test]
    fn i8_names_from_the_server_that_lead_elsewhere_are_refused() {
        for name in ["..", ".", "", "a/b", "/etc/passwd", "a\0"] {
            let root = Directory { files: vec![file(name)], ..Directory::default() };
            assert!(unfold(root, Vec::new()).is_err(), "{name:?}");
            let link = SymlinkNode { name: name.to_owned(), target: "t".to_owned(), ..Default::default() };
            assert!(unfold(Directory { symlinks: vec![link], ..Directory::default() }, Vec::new()).is_err());
            let empty = Directory::default();
            let node = DirectoryNode { name: name.to_owned(), digest: told(&empty.encode_to_vec()) };
            assert!(
                unfold(Directory { directories: vec![node], ..Directory::default() }, vec![empty]).is_err()
            );
        }
    }

    #[test]
    fn i9_a_small_tree_that_unfolds_to_a_huge_one_is_refused() {
        let mut children = vec![Directory { files: vec![file("leaf")], ..Directory::default() }];
        for _ in 0..30 {
            let digest = told(&children.last().unwrap().encode_to_vec());
            let node = |name: u8| DirectoryNode { name: name.to_string(), digest: digest.clone() };
            children.push(Directory { directories: (0..4).map(node).collect(), ..Directory::default() });
        }
        let root = children.pop().unwrap();
        let error = unfold(root, children).err().unwrap().to_string();
        assert!(error.contains("entries"), "{error}");
    }

    #[test]
    fn a_tree_that_lacks_a_directory_is_refused() {
        let node = DirectoryNode { name: "below".to_owned(), digest: told(b"?") };
        let root = Directory { directories: vec![node], ..Directory::default() };
        assert!(unfold(root, Vec::new()).err().unwrap().to_string().contains("lacks below"));
    }
}
