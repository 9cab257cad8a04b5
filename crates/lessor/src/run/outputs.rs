//! Checks the outputs of a result: every path was requested or is below a requested path, every name is one path
//! component, and a small tree that unfolds to a huge one is refused.

use std::collections::{HashMap, HashSet};

use blobs::Digest;
use execution::limits::{MAX_ENTRIES, MAX_TREE_BYTES};
use execution::reapi::{self, ActionResult};
use execution::{
    Directory, InvalidMessage, RelativePath, TreeDirectory, TreeReader, decode_proto, digest,
    tree_directories,
};
use serde::Serialize;

use super::error::Error;
use super::fetch;
use super::inputs::{FUNCTION, InputEntry};
use super::remote::Remote;

/// One entry to be written.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    File(OutputFile),
    Directory { path: RelativePath },
    Link { path: RelativePath, target: String },
}

impl Entry {
    fn path_mut(&mut self) -> &mut RelativePath {
        match self {
            Entry::File(OutputFile { path, .. }) | Entry::Directory { path } | Entry::Link { path, .. } => {
                path
            }
        }
    }

    /// As an entry of the input directory.
    fn as_input(&self, working_directory: &RelativePath) -> InputEntry {
        let at = |path: &RelativePath| working_directory.join(path).to_string();
        match self {
            Entry::File(OutputFile { path, digest, is_executable }) => {
                InputEntry::File { path: at(path), digest: *digest, is_executable: *is_executable }
            }
            Entry::Directory { path } => InputEntry::Directory { path: at(path) },
            Entry::Link { path, target } => InputEntry::Link { path: at(path), target: target.clone() },
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct OutputFile {
    pub path: RelativePath,
    pub digest: Digest,
    pub is_executable: bool,
}

/// One output as it was requested.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Output {
    pub path: String,
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

#[derive(Default)]
pub(super) struct Outputs {
    pub entries: Vec<Entry>,
    pub reported: Vec<Output>,
    /// Requested outputs that the result does not name.
    pub missing: Vec<String>,
}

impl Outputs {
    #[allow(deprecated, reason = "some servers name links only there")]
    pub(super) async fn read(
        remote: &Remote,
        result: &ActionResult,
        asked: &[RelativePath],
    ) -> Result<Outputs, Error> {
        let mut outputs = Outputs::default();
        let mut missing: Vec<&RelativePath> = asked.iter().collect();
        let mut expect = |text: &str| {
            let path = asked.iter().find(|path| path.to_string() == text);
            let path =
                path.ok_or_else(|| Error::output(text, "the server names it, but nobody asked for it"))?;
            missing.retain(|other| *other != path);
            Ok::<RelativePath, Error>(path.clone())
        };
        for file in &result.output_files {
            let path = expect(&file.path)?;
            let digest = digest_of(file.digest.as_ref(), &file.path)?;
            outputs.report(&file.path, "file", Some(digest));
            outputs.entries.push(Entry::File(OutputFile { path, digest, is_executable: file.is_executable }));
        }
        for directory in &result.output_directories {
            let path = expect(&directory.path)?;
            let digest = digest_of(directory.tree_digest.as_ref(), &directory.path)?;
            outputs.report(&directory.path, "directory", Some(digest));
            let content = fetch::whole(remote, digest, MAX_TREE_BYTES).await?;
            outputs.unfold(&path, &digest, &content)?;
        }
        let links =
            [&result.output_symlinks, &result.output_file_symlinks, &result.output_directory_symlinks];
        for link in links.into_iter().flatten() {
            let path = expect(&link.path)?;
            if !outputs.reported.iter().any(|output| output.path == link.path) {
                outputs.report(&link.path, "symlink", None);
                outputs.entries.push(checked_link(path, &link.target)?);
            }
        }
        outputs.missing = missing.into_iter().map(|path| path.to_string()).collect();
        outputs.missing.dedup();
        Ok(outputs)
    }

    /// Keeps what the command made or replaced, out of its whole working directory. What it put into the directory that
    /// receives the results, `place`, is written there, and not below another directory of that name.
    pub(super) fn keep_changes(
        &mut self,
        inputs: &HashSet<InputEntry>,
        working_directory: Option<&RelativePath>,
        place: Option<&RelativePath>,
    ) {
        let working_directory = working_directory.cloned().unwrap_or_default();
        self.entries.retain(|entry| !inputs.contains(&entry.as_input(&working_directory)));
        let Some(place) = place.filter(|place| !place.components().is_empty()) else { return };
        for entry in &mut self.entries {
            let path = entry.path_mut();
            if let Some(below) = path.strip_prefix(place) {
                *path = below;
            }
        }
        // The directories themselves are there already.
        self.entries.retain_mut(|entry| !entry.path_mut().components().is_empty());
    }

    pub(super) fn bytes(&self) -> u64 {
        let size = |entry: &Entry| match entry {
            Entry::File(file) => file.digest.size,
            _ => 0,
        };
        // The server names the sizes: their sum may be more than any number holds.
        self.entries.iter().map(size).fold(0, u64::saturating_add)
    }

    fn report(&mut self, path: &str, kind: &'static str, digest: Option<Digest>) {
        let digest = digest.map(|digest| digest.to_string());
        self.reported.push(Output { path: path.to_owned(), kind, digest });
    }

    /// Adds everything in an output directory, each directory before its entries. `content` is a Tree message.
    fn unfold(&mut self, path: &RelativePath, tree: &Digest, content: &[u8]) -> Result<(), Error> {
        let bad = |why: InvalidMessage| Error::output(path.to_string(), why);
        let mut directories = HashMap::new();
        let mut root: Option<Digest> = None;
        for directory in tree_directories(tree, content) {
            let TreeDirectory { is_root, encoded } = directory.map_err(bad)?;
            let digest = Digest::of(tree.function, encoded);
            let message = decode_proto(tree, encoded, MAX_ENTRIES as usize).map_err(bad)?;
            directories.insert(digest, Directory::from_proto(tree, message).map_err(bad)?);
            root = root.or(is_root.then_some(digest));
        }
        let Some(root) = root else {
            self.entries.push(Entry::Directory { path: path.clone() });
            return Ok(());
        };
        let mut reader = TreeReader::new(root);
        while let Some((_, level)) = reader.next_level().map_err(bad)? {
            for digest in level {
                let directory = directories.get(&digest).ok_or_else(|| {
                    Error::output(
                        path.to_string(),
                        format!("the directory {digest} is missing from its tree"),
                    )
                })?;
                reader.add(digest, directory).map_err(bad)?;
            }
        }
        reader.finish().map_err(bad)?;
        let mut rest = vec![(path.clone(), root)];
        while let Some((at, directory)) = rest.pop() {
            let Some(directory) = directories.get(&directory) else { continue };
            self.entries.push(Entry::Directory { path: at.clone() });
            let child = |name: &str| at.child(name).map_err(|why| Error::output(path.to_string(), why));
            for file in &directory.files {
                let (path, digest) = (child(&file.name)?, file.digest);
                let is_executable = file.is_executable;
                self.entries.push(Entry::File(OutputFile { path, digest, is_executable }));
            }
            for (name, target) in &directory.symlinks {
                self.entries.push(Entry::Link { path: child(name)?, target: target.clone() });
            }
            for (name, below) in &directory.directories {
                rest.push((child(name)?, *below));
            }
        }
        // Each tree is within the limit by now; all of them together must be, too.
        if self.entries.len() as u64 > MAX_ENTRIES {
            return Err(Error::output(
                path.to_string(),
                format!("the outputs have more than {MAX_ENTRIES} entries"),
            ));
        }
        Ok(())
    }
}

fn digest_of(digest: Option<&reapi::Digest>, path: &str) -> Result<Digest, Error> {
    digest::from_proto(digest, FUNCTION, path).map_err(Error::nonsense)
}

fn checked_link(path: RelativePath, target: &str) -> Result<Entry, Error> {
    if target.is_empty() || target.contains('\0') {
        return Err(Error::output(path.to_string(), "the target of the link is empty or contains a NUL"));
    }
    Ok(Entry::Link { path, target: target.to_owned() })
}

#[cfg(test)]
mod tests {
    use execution::reapi::{Directory, DirectoryNode, FileNode, SymlinkNode, Tree};
    use prost::Message;

    use super::*;

    fn to_proto(content: &[u8]) -> Option<reapi::Digest> {
        Some(digest::to_proto(&Digest::of(FUNCTION, content)))
    }

    fn unfold(root: Directory, children: Vec<Directory>) -> Result<Outputs, Error> {
        let mut outputs = Outputs::default();
        let tree = Tree { root: Some(root), children }.encode_to_vec();
        let digest = Digest::of(FUNCTION, &tree);
        outputs.unfold(&RelativePath::parse("out").unwrap(), &digest, &tree).map(|()| outputs)
    }

    fn file(name: &str) -> FileNode {
        FileNode { name: name.to_owned(), digest: to_proto(b"x"), ..FileNode::default() }
    }

    #[test]
    fn i8_names_from_the_server_that_lead_elsewhere_are_refused() {
        for name in ["..", ".", "", "a/b", "/etc/passwd", "a\0"] {
            let root = Directory { files: vec![file(name)], ..Directory::default() };
            assert!(unfold(root, Vec::new()).is_err(), "{name:?}");
            let link = SymlinkNode { name: name.to_owned(), target: "t".to_owned(), ..Default::default() };
            assert!(unfold(Directory { symlinks: vec![link], ..Directory::default() }, Vec::new()).is_err());
            let empty = Directory::default();
            let node = DirectoryNode { name: name.to_owned(), digest: to_proto(&empty.encode_to_vec()) };
            assert!(
                unfold(Directory { directories: vec![node], ..Directory::default() }, vec![empty]).is_err()
            );
        }
    }

    #[test]
    fn i9_a_small_tree_that_unfolds_to_a_huge_one_is_refused() {
        let mut children = vec![Directory { files: vec![file("leaf")], ..Directory::default() }];
        for _ in 0..30 {
            let digest = to_proto(&children.last().unwrap().encode_to_vec());
            let node = |name: u8| DirectoryNode { name: name.to_string(), digest: digest.clone() };
            children.push(Directory { directories: (0..4).map(node).collect(), ..Directory::default() });
        }
        let root = children.pop().unwrap();
        let error = unfold(root, children).err().unwrap().to_string();
        assert!(error.contains("entries"), "{error}");
    }

    #[test]
    fn sizes_whose_sum_no_number_holds_are_added_up_without_a_panic() {
        let huge = Digest { size: u64::MAX / 2, ..Digest::of(FUNCTION, b"x") };
        let file = OutputFile { path: RelativePath::default(), digest: huge, is_executable: false };
        let outputs = Outputs { entries: vec![Entry::File(file); 3], ..Outputs::default() };
        assert_eq!(outputs.bytes(), u64::MAX);
    }

    #[test]
    fn a_tree_that_lacks_a_directory_is_refused() {
        let node = DirectoryNode { name: "below".to_owned(), digest: to_proto(b"?") };
        let root = Directory { directories: vec![node], ..Directory::default() };
        assert!(unfold(root, Vec::new()).err().unwrap().to_string().contains("is missing from its tree"));
    }
}
