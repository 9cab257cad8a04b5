//! One directory of a tree: read within bounds that hold before it is decoded, and checked (R12).

use std::collections::HashSet;

use blobs::Digest;
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use tonic::Status;

use crate::reapi::messages::{Directory, NodeProperties};

/// Largest directory message: one that fits into a batch, so that any client can read it. That is about 40,000 files.
pub const MAX_DIRECTORY_BYTES: u64 = blobs::MAX_BATCH_BYTES;
/// Most files, directories and links of a directory, and most properties of all of them. An entry of two bytes takes more
/// than a hundred in memory; one that names content has never less than seventy.
const MAX_DIRECTORY_ENTRIES: usize = 100_000;
/// The fields of a directory that are its entries.
const ENTRY_FIELDS: std::ops::RangeInclusive<u32> = 1..=3;

/// A directory whose names are safe and in order.
pub fn read(named: &Digest, bytes: &[u8]) -> Result<Directory, Status> {
    let read = decode(named, bytes, MAX_DIRECTORY_ENTRIES)?;
    let lists: [(&str, Vec<&str>); 3] = [
        ("files", read.files.iter().map(|node| node.name.as_str()).collect()),
        ("directories", read.directories.iter().map(|node| node.name.as_str()).collect()),
        ("symlinks", read.symlinks.iter().map(|node| node.name.as_str()).collect()),
    ];
    let mut names = HashSet::new();
    for (list, of_list) in &lists {
        for pair in of_list.windows(2) {
            if pair[0] >= pair[1] {
                return Err(Status::invalid_argument(format!(
                    "directory {named}: {list} must be sorted by name, but {:?} comes before {:?}",
                    pair[0], pair[1]
                )));
            }
        }
        for name in of_list {
            if let Some(what) = fault_of_name(name) {
                return Err(Status::invalid_argument(format!("directory {named}: the name {name:?} {what}")));
            }
            if !names.insert(*name) {
                return Err(Status::invalid_argument(format!(
                    "directory {named}: the name {name:?} is used twice"
                )));
            }
        }
    }
    Ok(read)
}

/// A directory that is, or is within, the blob of this name. Its names are not looked at.
pub fn decode(named: &Digest, bytes: &[u8], max_entries: usize) -> Result<Directory, Status> {
    let refused =
        || Status::invalid_argument(format!("{named} is not a directory of the Remote Execution API"));
    let mut entries = 0;
    for part in parts(bytes) {
        let (field, _) = part.ok_or_else(refused)?;
        entries += usize::from(ENTRY_FIELDS.contains(&field));
    }
    let read = match entries > max_entries {
        true => return Err(too_many(named, max_entries)),
        false => Directory::decode(bytes).map_err(|_| refused())?,
    };
    let of_files = read.files.iter().map(|node| &node.node_properties);
    let of_links = read.symlinks.iter().map(|node| &node.node_properties);
    let all = of_files.chain(of_links).chain([&read.node_properties]).flatten();
    let properties: usize = all.map(|all: &NodeProperties| all.properties.len()).sum();
    if properties > max_entries { Err(too_many(named, max_entries)) } else { Ok(read) }
}

fn too_many(named: &Digest, max_entries: usize) -> Status {
    Status::invalid_argument(format!(
        "directory {named}: has more than {max_entries} entries, or properties of entries"
    ))
}

/// The parts of a message that may be messages, each with the number of its field; none where the bytes are no message.
pub fn parts(mut bytes: &[u8]) -> impl Iterator<Item = Option<(u32, &[u8])>> {
    std::iter::from_fn(move || {
        while !bytes.is_empty() {
            match next_part(&mut bytes) {
                Some(None) => {}
                Some(part) => return Some(part),
                None => {
                    bytes = &[];
                    return Some(None);
                }
            }
        }
        None
    })
}

/// The next field if it may be a message, and an inner none if it is something else.
fn next_part<'a>(bytes: &mut &'a [u8]) -> Option<Option<(u32, &'a [u8])>> {
    let (field, wire_type) = decode_key(bytes).ok()?;
    if wire_type != WireType::LengthDelimited {
        skip_field(wire_type, field, bytes, DecodeContext::default()).ok()?;
        return Some(None);
    }
    let length = usize::try_from(decode_varint(bytes).ok()?).ok()?;
    let (part, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(Some((field, part)))
}

/// What keeps a name from being one step of a path.
fn fault_of_name(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("is empty"),
        "." | ".." => Some("leads elsewhere"),
        _ if name.contains('/') => Some("contains a slash"),
        _ if name.contains('\0') => Some("contains a NUL"),
        _ if name.len() > 255 => Some("is longer than 255 bytes"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::reapi::messages::{FileNode, NodeProperty, SymlinkNode};

    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        let named = Digest::of(blobs::DigestFunction::Sha256, bytes);
        decode(&named, bytes, MAX_DIRECTORY_ENTRIES).unwrap_err().message().to_owned()
    }

    #[test]
    fn a6_a_directory_of_millions_of_empty_entries_is_refused_before_it_is_decoded() {
        for field in [0x0a, 0x12, 0x1a] {
            assert!(refusal(&[field, 0].repeat(1_000_000)).contains("has more than"));
        }
        let properties = vec![NodeProperty::default(); MAX_DIRECTORY_ENTRIES + 1];
        let node_properties = Some(NodeProperties { properties, ..NodeProperties::default() });
        let link = SymlinkNode { name: "l".into(), node_properties, ..SymlinkNode::default() };
        let hostile = Directory { symlinks: vec![link], ..Directory::default() };
        assert!(refusal(&hostile.encode_to_vec()).contains("has more than"));
    }

    #[test]
    fn what_is_no_directory_is_refused_and_what_is_one_reads_back() {
        for garbage in [&[0xff; 40][..], &[0x0a, 5, 1], &[0x0a, 0xff]] {
            assert!(refusal(garbage).contains("is not a directory"));
        }
        let file = FileNode { name: "f".into(), is_executable: true, ..FileNode::default() };
        let honest = Directory { files: vec![file], ..Directory::default() };
        let bytes = honest.encode_to_vec();
        assert_eq!(read(&Digest::of(blobs::DigestFunction::Sha256, &bytes), &bytes).unwrap(), honest);
    }
}
