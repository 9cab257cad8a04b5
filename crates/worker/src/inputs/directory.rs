//! One directory of an input tree, checked: every name is one path component, no name is there twice, every digest is
//! well formed.

use std::ffi::OsStr;

use bazel_remote_apis::build::bazel::remote::execution::v2::{self, NodeProperties};
use blobs::{Digest, DigestFunction};
use prost::Message;

use crate::cache::Key;
use crate::names::component;
use crate::{Failure, digest};

/// Each of the lists is in the order of its names.
#[derive(Debug, Default)]
pub struct Directory {
    pub files: Vec<FileNode>,
    pub directories: Vec<(String, Digest)>,
    /// Names and targets.
    pub symlinks: Vec<(String, String)>,
}

/// What a name of a directory is for: a place in one of its lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    File(usize),
    Directory(usize),
    Symlink(usize),
}

#[derive(Debug)]
pub struct FileNode {
    pub name: String,
    pub key: Key,
    /// What makes this file different from others with its content, if anything does (R51).
    pub own: Option<Box<OwnProperties>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnProperties {
    /// Permission bits only: nothing that would change who runs it (X12).
    pub unix_mode: Option<u32>,
    pub modified: Option<(i64, i32)>,
}

impl Directory {
    pub fn read(function: DigestFunction, content: &[u8]) -> Result<Directory, Failure> {
        let read = v2::Directory::decode(content).map_err(|error| {
            Failure::invalid_action(format!("an input directory cannot be read: {error}"))
        })?;
        let mut directory = Directory::default();
        for file in read.files {
            let name = checked(file.name)?;
            let digest = digest::read(function, file.digest.as_ref(), &name)?;
            let key = Key { digest, is_executable: file.is_executable };
            directory.files.push(FileNode { key, own: own_properties(file.node_properties.as_ref()), name });
        }
        for below in read.directories {
            let name = checked(below.name)?;
            let digest = digest::read(function, below.digest.as_ref(), &name)?;
            directory.directories.push((name, digest));
        }
        for link in read.symlinks {
            let name = checked(link.name)?;
            if link.target.is_empty() || link.target.contains('\0') {
                return Err(Failure::invalid_action(format!(
                    "the symbolic link {name:?} has no good target"
                )));
            }
            directory.symlinks.push((name, link.target));
        }
        directory.check_unique()?;
        // The protocol asks for this order, and not everybody keeps to it.
        directory.files.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        directory.directories.sort_unstable();
        directory.symlinks.sort_unstable();
        Ok(directory)
    }

    pub fn find(&self, name: &OsStr) -> Option<Location> {
        let name = name.as_encoded_bytes();
        let file =
            self.files.binary_search_by(|file| file.name.as_bytes().cmp(name)).ok().map(Location::File);
        let in_directories = || self.directories.binary_search_by(|(own, _)| own.as_bytes().cmp(name)).ok();
        let in_symlinks = || self.symlinks.binary_search_by(|(own, _)| own.as_bytes().cmp(name)).ok();
        file.or_else(|| in_directories().map(Location::Directory))
            .or_else(|| in_symlinks().map(Location::Symlink))
    }

    fn check_unique(&self) -> Result<(), Failure> {
        let files = self.files.iter().map(|file| file.name.as_str());
        let directories = self.directories.iter().map(|(name, _)| name.as_str());
        let links = self.symlinks.iter().map(|(name, _)| name.as_str());
        let mut names: Vec<&str> = files.chain(directories).chain(links).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Failure::invalid_action(format!("the name {:?} is there twice", pair[0]))),
            None => Ok(()),
        }
    }

    pub fn entries(&self) -> usize {
        self.files.len() + self.directories.len() + self.symlinks.len()
    }
}

fn checked(name: String) -> Result<String, Failure> {
    match component(&name) {
        Ok(_) => Ok(name),
        Err(why) => Err(Failure::invalid_action(format!("the name {name:?} of an input {why}"))),
    }
}

fn own_properties(given: Option<&NodeProperties>) -> Option<Box<OwnProperties>> {
    let given = given?;
    let own = OwnProperties {
        unix_mode: given.unix_mode.as_ref().map(|mode| mode.value & 0o777),
        modified: given.mtime.as_ref().map(|time| (time.seconds, time.nanos)),
    };
    (own.unix_mode.is_some() || own.modified.is_some()).then(|| Box::new(own))
}

#[cfg(test)]
mod tests {
    use blobs::DigestFunction::Sha256;

    use super::*;

    fn read(directory: &v2::Directory) -> Result<Directory, Failure> {
        Directory::read(Sha256, &directory.encode_to_vec())
    }

    fn file(name: &str) -> v2::FileNode {
        let digest = digest::told(&Digest::of(Sha256, b"x"));
        v2::FileNode { name: name.to_owned(), digest: Some(digest), ..v2::FileNode::default() }
    }

    #[test]
    fn i8_names_that_lead_elsewhere_or_are_there_twice_are_refused() {
        for name in ["", ".", "..", "a/b", "/etc/passwd", "a\0b"] {
            let bad = v2::Directory { files: vec![file(name)], ..v2::Directory::default() };
            assert_eq!(read(&bad).unwrap_err().code, Failure::INVALID_ACTION, "{name:?}");
            let link = v2::SymlinkNode { name: name.into(), target: "t".into(), ..Default::default() };
            let bad = v2::Directory { symlinks: vec![link], ..v2::Directory::default() };
            assert!(read(&bad).is_err(), "{name:?}");
            let below = v2::DirectoryNode { name: name.into(), digest: file("a").digest };
            let bad = v2::Directory { directories: vec![below], ..v2::Directory::default() };
            assert!(read(&bad).is_err(), "{name:?}");
        }
        let link = v2::SymlinkNode { name: "a".into(), target: "t".into(), ..Default::default() };
        let twice =
            v2::Directory { files: vec![file("a")], symlinks: vec![link], ..v2::Directory::default() };
        assert!(read(&twice).unwrap_err().message.contains("twice"));
    }

    #[test]
    fn i5_a_file_without_a_good_digest_is_refused() {
        let none = v2::FileNode { digest: None, ..file("a") };
        let bad = v2::Digest { hash: "ABC".into(), size_bytes: 1 };
        let negative = v2::Digest { size_bytes: -1, ..file("a").digest.unwrap() };
        for file in [
            none,
            v2::FileNode { digest: Some(bad), ..file("a") },
            v2::FileNode { digest: Some(negative), ..file("a") },
        ] {
            assert!(read(&v2::Directory { files: vec![file], ..v2::Directory::default() }).is_err());
        }
        assert!(Directory::read(Sha256, b"\xff\xff").is_err());
    }
}
