//! Encodes an output directory: every directory once, parents before children, names in order, so that equal
//! directories have equal bytes (R50).

use std::collections::HashSet;

use blobs::Digest;
use execution::limits::{MAX_DEPTH, MAX_ENTRIES};
use prost::Message;
use rustix::fs::FileType;

use super::collect::{Collector, is_executable, properties, special, text};
use crate::Failure;
use crate::dirfd::{Directory, kind};
use execution::reapi::{Directory as Node, DirectoryNode, FileNode, SymlinkNode};
use execution::{RelativePath, digest};

pub(super) struct Tree {
    pub root: Digest,
    /// Encoded, the root first, each before those in it.
    pub directories: Vec<Vec<u8>>,
}

impl Tree {
    /// The `Tree` message. It is encoded by hand, because consumers of a sorted tree rely on this order of its fields, and
    /// the directories are encoded already.
    pub(super) fn encode(&self) -> Vec<u8> {
        const ROOT: u32 = 1;
        const CHILD: u32 = 2;
        let bytes = self.directories.iter().map(|directory| directory.len() + 8).sum();
        let mut encoded = Vec::with_capacity(bytes);
        for (n, directory) in self.directories.iter().enumerate() {
            let field = if n == 0 { ROOT } else { CHILD };
            prost::encoding::encode_key(field, prost::encoding::WireType::LengthDelimited, &mut encoded);
            prost::encoding::encode_varint(directory.len() as u64, &mut encoded);
            encoded.extend_from_slice(directory);
        }
        encoded
    }
}

pub(super) fn read(
    collector: &mut Collector<'_>,
    directory: &Directory,
    path: &RelativePath,
) -> Result<Tree, Failure> {
    let mut reader = Reader { collector, finished: Vec::new(), seen: HashSet::new(), entries: 0 };
    let root = reader.directory(directory, path)?;
    // Each directory is finished after those in it.
    let mut directories = reader.finished;
    directories.reverse();
    Ok(Tree { root, directories })
}

struct Reader<'a, 'b> {
    collector: &'a mut Collector<'b>,
    finished: Vec<Vec<u8>>,
    seen: HashSet<Digest>,
    entries: usize,
}

impl Reader<'_, '_> {
    fn directory(&mut self, directory: &Directory, path: &RelativePath) -> Result<Digest, Failure> {
        let io = |error: rustix::io::Errno| {
            Failure::io(format!("the output directory {:?}", path.to_string()), error)
        };
        let depth = path.components().len();
        let names = directory.names().map_err(io)?;
        self.entries += names.len();
        if self.entries as u64 > MAX_ENTRIES || depth > MAX_DEPTH {
            let message =
                format!("an output directory has more than {MAX_ENTRIES} entries or {MAX_DEPTH} levels");
            return Err(Failure::invalid_output(message));
        }
        let names = names.into_iter().map(|name| text(name, "the name of an output in", &path.to_string()));
        let mut names = names.collect::<Result<Vec<_>, _>>()?;
        names.sort_unstable();
        let mut node = Node::default();
        for name in names {
            let below = || path.child(&name).unwrap_or_default();
            let stat = match directory.stat(&name) {
                Ok(stat) => stat,
                Err(rustix::io::Errno::NOENT) => continue,
                Err(error) => return Err(io(error)),
            };
            match kind(&stat) {
                FileType::RegularFile => {
                    let (digest, stat) = self.collector.read(directory, &name, below)?;
                    node.files.push(FileNode {
                        digest: Some(digest::to_proto(&digest)),
                        is_executable: is_executable(&stat),
                        node_properties: properties(self.collector.expected.properties, &stat),
                        name,
                    });
                }
                FileType::Directory => {
                    let opened = directory.directory(&name).map_err(io)?;
                    let digest = self.directory(&opened, &below())?;
                    node.directories.push(DirectoryNode { digest: Some(digest::to_proto(&digest)), name });
                }
                FileType::Symlink => {
                    let target = self.collector.target(directory, &name, depth)?;
                    let node_properties = properties(self.collector.expected.properties, &stat);
                    node.symlinks.push(SymlinkNode { name, target, node_properties });
                }
                _ => return Err(special(&name)),
            }
        }
        let encoded = node.encode_to_vec();
        let digest = Digest::of(self.collector.function, &encoded);
        if self.seen.insert(digest) {
            self.finished.push(encoded);
        }
        Ok(digest)
    }
}
