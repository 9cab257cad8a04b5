//! Decodes and checks one directory of a tree (R12). A decoded `Directory` is safe to create: every name is one path
//! component, no name is used twice, every digest is well formed.

use blobs::Digest;
use prost::Message;

use crate::limits::MAX_DIRECTORY_ENTRIES;
use crate::reapi::{self, NodeProperties};
use crate::{InvalidMessage, component, digest, fields};

/// The fields of a Directory message.
const FILES: u32 = 1;
const DIRECTORIES: u32 = 2;
const SYMLINKS: u32 = 3;
const DIRECTORY_PROPERTIES: u32 = 5;
/// The NodeProperties of a FileNode and of a SymlinkNode, and the list in a NodeProperties message.
const FILE_PROPERTIES: u32 = 6;
const SYMLINK_PROPERTIES: u32 = 4;
const PROPERTIES: u32 = 1;

/// Each of the lists is sorted by name.
#[derive(Debug, Default)]
pub struct Directory {
    pub files: Vec<FileNode>,
    pub directories: Vec<(String, Digest)>,
    /// Names and targets.
    pub symlinks: Vec<(String, String)>,
}

#[derive(Debug)]
pub struct FileNode {
    pub name: String,
    pub digest: Digest,
    pub is_executable: bool,
    /// Boxed, because few files have any (R51).
    pub properties: Option<Box<FileProperties>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileProperties {
    /// Permission bits only: an input must not change who runs it (X12).
    pub unix_mode: Option<u32>,
    /// Seconds and nanoseconds since 1970.
    pub mtime: Option<(i64, i32)>,
}

impl Directory {
    /// `named` is the digest of the directory, or of the tree that the directory is a part of.
    pub fn decode(named: &Digest, bytes: &[u8]) -> Result<Directory, InvalidMessage> {
        Directory::from_proto(named, decode_proto(named, bytes, MAX_DIRECTORY_ENTRIES)?)
    }

    pub fn from_proto(named: &Digest, message: reapi::Directory) -> Result<Directory, InvalidMessage> {
        let name = |name: String| match component(&name) {
            Ok(_) => Ok(name),
            Err(why) => Err(InvalidMessage::new(format!("directory {named}: the name {name:?} {why}"))),
        };
        let digest_of = |digest: Option<&reapi::Digest>, name: &str| {
            digest::from_proto(digest, named.function, format_args!("the entry {name:?}"))
        };
        let mut directory = Directory::default();
        for file in message.files {
            directory.files.push(FileNode {
                digest: digest_of(file.digest.as_ref(), &file.name)?,
                name: name(file.name)?,
                is_executable: file.is_executable,
                properties: FileProperties::from_proto(file.node_properties.as_ref()),
            });
        }
        for below in message.directories {
            let digest = digest_of(below.digest.as_ref(), &below.name)?;
            directory.directories.push((name(below.name)?, digest));
        }
        for link in message.symlinks {
            let name = name(link.name)?;
            if link.target.is_empty() || link.target.contains('\0') {
                return Err(InvalidMessage::new(format!(
                    "directory {named}: the target of the symbolic link {name:?} is empty or contains a NUL"
                )));
            }
            directory.symlinks.push((name, link.target));
        }
        // The protocol requires this order, but not every client keeps to it.
        directory.files.sort_by(|a, b| a.name.cmp(&b.name));
        directory.directories.sort();
        directory.symlinks.sort();
        directory.check_unique(named)?;
        Ok(directory)
    }

    fn check_unique(&self, named: &Digest) -> Result<(), InvalidMessage> {
        let files = self.files.iter().map(|file| file.name.as_str());
        let directories = self.directories.iter().map(|(name, _)| name.as_str());
        let symlinks = self.symlinks.iter().map(|(name, _)| name.as_str());
        let mut names: Vec<&str> = files.chain(directories).chain(symlinks).collect();
        // Stable sorting merges the three sorted lists in linear time.
        names.sort();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                Err(InvalidMessage::new(format!("directory {named}: the name {:?} is used twice", pair[0])))
            }
            None => Ok(()),
        }
    }

    pub fn entries(&self) -> usize {
        self.files.len() + self.directories.len() + self.symlinks.len()
    }
}

impl FileProperties {
    fn from_proto(properties: Option<&NodeProperties>) -> Option<Box<FileProperties>> {
        let properties = properties?;
        let own = FileProperties {
            unix_mode: properties.unix_mode.as_ref().map(|mode| mode.value & 0o777),
            mtime: properties.mtime.as_ref().map(|time| (time.seconds, time.nanos)),
        };
        (own.unix_mode.is_some() || own.mtime.is_some()).then(|| Box::new(own))
    }
}

/// Decodes a Directory message whose numbers of entries and of their properties are checked before they take memory. Names
/// are not checked.
pub fn decode_proto(
    named: &Digest,
    bytes: &[u8],
    max_entries: usize,
) -> Result<reapi::Directory, InvalidMessage> {
    let invalid = || InvalidMessage::new(format!("{named} is not a directory of the Remote Execution API"));
    let too_many = || {
        InvalidMessage::new(format!(
            "directory {named}: has more than {max_entries} entries, or properties of entries"
        ))
    };
    let (mut entries, mut properties) = (0, 0);
    for field in fields::length_delimited(bytes) {
        let (number, content) = field.ok_or_else(invalid)?;
        entries += usize::from(matches!(number, FILES | DIRECTORIES | SYMLINKS));
        properties += match number {
            FILES => properties_of_node(content, FILE_PROPERTIES),
            SYMLINKS => properties_of_node(content, SYMLINK_PROPERTIES),
            DIRECTORY_PROPERTIES => count_fields(content, PROPERTIES),
            _ => Some(0),
        }
        .ok_or_else(invalid)?;
        if entries > max_entries || properties > max_entries {
            return Err(too_many());
        }
    }
    reapi::Directory::decode(bytes).map_err(|_| invalid())
}

/// The number of properties of an encoded node; none if it is malformed. A node may have the field several times, which
/// the decoder merges.
fn properties_of_node(node: &[u8], field: u32) -> Option<usize> {
    fields::length_delimited(node).try_fold(0, |sum, found| match found? {
        (number, properties) if number == field => Some(sum + count_fields(properties, PROPERTIES)?),
        _ => Some(sum),
    })
}

fn count_fields(message: &[u8], field: u32) -> Option<usize> {
    fields::length_delimited(message).try_fold(0, |sum, found| Some(sum + usize::from(found?.0 == field)))
}

/// The protocol requires each list of entries to be sorted by name, so that equal directories have equal digests.
pub fn check_sorted(named: &Digest, message: &reapi::Directory) -> Result<(), InvalidMessage> {
    let files: Vec<_> = message.files.iter().map(|node| &node.name).collect();
    let directories: Vec<_> = message.directories.iter().map(|node| &node.name).collect();
    let symlinks: Vec<_> = message.symlinks.iter().map(|node| &node.name).collect();
    for (list, names) in [("files", files), ("directories", directories), ("symlinks", symlinks)] {
        if let Some(pair) = names.windows(2).find(|pair| pair[0] > pair[1]) {
            return Err(InvalidMessage::new(format!(
                "directory {named}: {list} must be sorted by name, but {:?} comes before {:?}",
                pair[0], pair[1]
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use blobs::DigestFunction::Sha256;

    use super::*;
    use crate::reapi::{DirectoryNode, NodeProperty, SymlinkNode};

    fn decode(directory: &reapi::Directory) -> Result<Directory, InvalidMessage> {
        let bytes = directory.encode_to_vec();
        Directory::decode(&Digest::of(Sha256, &bytes), &bytes)
    }

    fn file(name: &str) -> reapi::FileNode {
        let digest = digest::to_proto(&Digest::of(Sha256, b"x"));
        reapi::FileNode { name: name.to_owned(), digest: Some(digest), ..reapi::FileNode::default() }
    }

    fn link(name: &str, target: &str) -> SymlinkNode {
        SymlinkNode { name: name.to_owned(), target: target.to_owned(), node_properties: None }
    }

    fn files(files: Vec<reapi::FileNode>) -> reapi::Directory {
        reapi::Directory { files, ..reapi::Directory::default() }
    }

    fn links(symlinks: Vec<SymlinkNode>) -> reapi::Directory {
        reapi::Directory { symlinks, ..reapi::Directory::default() }
    }

    fn refusal(bytes: &[u8]) -> String {
        decode_proto(&Digest::of(Sha256, bytes), bytes, MAX_DIRECTORY_ENTRIES).unwrap_err().to_string()
    }

    #[test]
    fn i8_names_that_lead_elsewhere_or_are_used_twice_are_refused() {
        for name in ["", ".", "..", "a/b", "/etc/passwd", "a\0b"] {
            assert!(decode(&files(vec![file(name)])).is_err(), "{name:?}");
            assert!(decode(&links(vec![link(name, "t")])).is_err(), "{name:?}");
            let below = DirectoryNode { name: name.into(), digest: file("a").digest };
            let bad = reapi::Directory { directories: vec![below], ..reapi::Directory::default() };
            assert!(decode(&bad).is_err(), "{name:?}");
        }
        let twice = reapi::Directory { symlinks: vec![link("a", "t")], ..files(vec![file("b"), file("a")]) };
        assert!(decode(&twice).unwrap_err().to_string().contains("twice"));
        assert!(decode(&files(vec![file("a"), file("a")])).unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn i5_a_file_without_a_well_formed_digest_is_refused() {
        let bad = reapi::Digest { hash: "ABC".into(), size_bytes: 1 };
        for digest in [None, Some(bad)] {
            assert!(decode(&files(vec![reapi::FileNode { digest, ..file("a") }])).is_err());
        }
    }

    #[test]
    fn a_symbolic_link_has_a_target() {
        for target in ["", "a\0"] {
            assert!(decode(&links(vec![link("a", target)])).is_err(), "{target:?}");
        }
        assert_eq!(decode(&links(vec![link("a", "/b")])).unwrap().symlinks, [("a".into(), "/b".into())]);
    }

    #[test]
    fn a_decoded_directory_is_sorted_and_an_unsorted_message_is_found() {
        let unsorted = files(vec![file("b"), file("a")]);
        let named = Digest::of(Sha256, b"");
        assert!(check_sorted(&named, &unsorted).unwrap_err().to_string().contains("sorted by name"));
        assert!(check_sorted(&named, &files(vec![file("a"), file("b")])).is_ok());
        let names: Vec<String> = decode(&unsorted).unwrap().files.into_iter().map(|file| file.name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a6_a_directory_of_millions_of_empty_entries_is_refused_before_it_is_decoded() {
        for field in [0x0a, 0x12, 0x1a] {
            assert!(refusal(&[field, 0].repeat(1_000_000)).contains("has more than"));
        }
        let properties = vec![NodeProperty::default(); MAX_DIRECTORY_ENTRIES + 1];
        let node_properties = Some(NodeProperties { properties, ..NodeProperties::default() });
        let hostile = links(vec![SymlinkNode { node_properties, ..link("l", "t") }]);
        assert!(refusal(&hostile.encode_to_vec()).contains("has more than"));
    }

    /// Regression: properties were counted after they had been decoded, which took 100 MB for a directory of 4 MiB.
    #[test]
    fn a6_millions_of_empty_properties_are_refused_before_they_are_decoded() {
        // A field of the number, with a length that is written in four bytes.
        let field = |number: u8, content: &[u8]| {
            let length = content.len() as u32;
            let part = |shift: u32| (length >> shift) as u8 & 0x7f;
            let head = [number << 3 | 2, part(0) | 0x80, part(7) | 0x80, part(14) | 0x80, part(21)];
            [&head[..], content].concat()
        };
        let properties = [0x0a, 0].repeat(MAX_DIRECTORY_ENTRIES + 1);
        let half = [0x0a, 0].repeat(MAX_DIRECTORY_ENTRIES / 2 + 1);
        let hostile = [
            field(1, &field(6, &properties)),
            field(1, &[field(6, &half), field(6, &half)].concat()),
            [field(1, &field(6, &half)), field(3, &field(4, &half))].concat(),
            field(3, &field(4, &properties)),
            field(5, &properties),
        ];
        for bytes in hostile {
            // A name that is not UTF-8, which only the decoder finds.
            let undecodable = [&[0x12, 3, 0x0a, 1, 0xff][..], &bytes].concat();
            assert!(refusal(&undecodable).contains("has more than"), "{}", refusal(&undecodable));
        }
        assert!(refusal(&[0x12, 3, 0x0a, 1, 0xff]).contains("is not a directory"));
        assert!(refusal(&field(5, &[0x0a, 9])).contains("is not a directory"));
    }

    #[test]
    fn bytes_that_are_not_a_directory_are_refused() {
        for garbage in [&[0xff; 40][..], &[0x0a, 5, 1], &[0x0a, 0xff]] {
            assert!(refusal(garbage).contains("is not a directory"));
        }
    }
}
