//! The input directory as a Merkle tree of the protocol.
//!
//! Files are read once for their digests and again for the upload, so that memory does not grow with their size; a file
//! that has changed meanwhile is found at the upload. A symbolic link is an entry of its own, whatever its target. Other
//! kinds of files are refused.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use blobs::{Digest, DigestFunction};
use bytes::Bytes;
use execution::digest;
use execution::limits::{MAX_DEPTH, MAX_ENTRIES};
use execution::reapi::{Directory, DirectoryNode, FileNode, SymlinkNode};
use prost::Message;

use super::error::Error;
use super::progress::Progress;
use super::selection::{Patterns, Selection};
use crate::data_dir;

/// Files that are read at a time, each on its own thread.
const MAX_READERS: usize = 8;

pub(super) const FUNCTION: DigestFunction = DigestFunction::Sha256;

/// The source of a blob's content.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Bytes(Bytes),
    File(PathBuf),
}

#[derive(Debug, Default)]
pub(super) struct Inputs {
    pub blobs: HashMap<Digest, Source>,
    pub files: usize,
    pub bytes: u64,
    /// Data directories of Lessor, which are not inputs.
    pub left_out: Vec<PathBuf>,
    /// Everything in the directory, to tell what a command changed.
    pub entries: HashSet<InputEntry>,
}

/// One entry of the input directory, by its path there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum InputEntry {
    File { path: String, digest: Digest, is_executable: bool },
    Directory { path: String },
    Link { path: String, target: String },
}

impl Inputs {
    /// Reads the directory, and gives its digest. Blocking.
    pub(super) fn read(
        directory: &Path,
        selection: &Selection,
        progress: &Progress,
    ) -> Result<(Inputs, Digest), Error> {
        let mut walk = Walk::default();
        walk.directory(directory, selection)?;
        let Walk { directories, files, left_out, .. } = walk;
        let bytes = files.iter().map(|file| file.about.len()).sum();
        progress.begin("Reading inputs", bytes);
        let digests = hash_all(&files, progress)?;
        let mut inputs = Inputs { files: files.len(), bytes, left_out, ..Inputs::default() };
        for (file, digest) in files.iter().zip(&digests) {
            inputs.blobs.entry(*digest).or_insert_with(|| Source::File(file.path.clone()));
        }
        inputs.entries = directories.iter().flat_map(|found| found.entries(&files, &digests)).collect();
        // A directory comes after its parent, so in reverse order its entries are done.
        let mut done: Vec<Option<Digest>> = vec![None; directories.len()];
        for (number, mut found) in directories.into_iter().enumerate().rev() {
            found.had_outputs |= found.directories.iter().any(|(_, below)| done[*below].is_none());
            found.directories.retain(|(_, below)| done[*below].is_some());
            // A directory with nothing but outputs is an output too.
            if number > 0 && found.had_outputs && found.is_empty() {
                continue;
            }
            done[number] = Some(inputs.add(found.encoded(&files, &digests, &done)));
        }
        let root = done.first().copied().flatten();
        root.map(|root| (inputs, root)).ok_or_else(|| Error::input(directory, "it could not be read"))
    }

    /// Adds a message of the protocol.
    pub(super) fn add(&mut self, content: Vec<u8>) -> Digest {
        let digest = Digest::of(FUNCTION, &content);
        self.blobs.entry(digest).or_insert_with(|| Source::Bytes(content.into()));
        digest
    }
}

#[derive(Default)]
struct Walk {
    directories: Vec<Found>,
    files: Vec<FoundFile>,
    left_out: Vec<PathBuf>,
    entries: u64,
}

#[derive(Default)]
struct Found {
    /// Relative to the input directory, with a slash at its end unless it is empty.
    path: String,
    /// Whether outputs were left out of it.
    had_outputs: bool,
    /// Names, and numbers in the walk.
    files: Vec<(String, usize)>,
    directories: Vec<(String, usize)>,
    /// Names and targets.
    links: Vec<(String, String)>,
}

struct FoundFile {
    path: PathBuf,
    about: Metadata,
}

impl FoundFile {
    fn is_executable(&self) -> bool {
        self.about.permissions().mode() & 0o111 != 0
    }
}

impl Walk {
    fn directory(&mut self, root: &Path, selection: &Selection) -> Result<(), Error> {
        let about = fs::metadata(root).map_err(|error| Error::input(root, error))?;
        if !about.is_dir() {
            return Err(Error::input(root, "it is not a directory"));
        }
        self.directories.push(Found::default());
        let mut rest = vec![(root.to_owned(), 0, 0, Patterns::default())];
        while let Some((path, number, depth, patterns)) = rest.pop() {
            if depth > MAX_DEPTH {
                return Err(Error::input(&path, format!("it lies deeper than {MAX_DEPTH} directories")));
            }
            let patterns = selection.enter(&path, patterns);
            for name in names(&path)? {
                let entry = path.join(&name);
                let about = fs::symlink_metadata(&entry).map_err(|error| Error::input(&entry, error))?;
                if selection.is_output(&entry) {
                    self.directories[number].had_outputs = true;
                    continue;
                }
                if selection.excludes(&entry, about.is_dir(), &patterns) {
                    continue;
                }
                if let Some(below) = self.entry(entry.clone(), name, about, number)? {
                    rest.push((entry, below, depth + 1, patterns.clone()));
                }
            }
        }
        Ok(())
    }

    /// The number of the directory that the entry is, if it is one.
    fn entry(
        &mut self,
        path: PathBuf,
        name: String,
        about: Metadata,
        number: usize,
    ) -> Result<Option<usize>, Error> {
        let failed = |error| Error::input(&path, error);
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(Error::input(&path, format!("there are more than {MAX_ENTRIES} inputs")));
        }
        let kind = about.file_type();
        if kind.is_file() {
            self.directories[number].files.push((name, self.files.len()));
            self.files.push(FoundFile { path, about });
        } else if kind.is_dir() {
            if data_dir::is_ours(&path) {
                self.left_out.push(path);
                return Ok(None);
            }
            let below = self.directories.len();
            let found =
                Found { path: format!("{}{name}/", self.directories[number].path), ..Found::default() };
            self.directories[number].directories.push((name, below));
            self.directories.push(found);
            return Ok(Some(below));
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).map_err(failed)?.into_os_string().into_string();
            let target = target.map_err(|_| Error::input(&path, "the target of the link is not UTF-8"))?;
            self.directories[number].links.push((name, target));
        } else {
            let what = if kind.is_fifo() {
                "a pipe"
            } else if kind.is_socket() {
                "a socket"
            } else {
                "a device"
            };
            return Err(Error::input(&path, format!("it is {what}, which cannot be sent; remove it")));
        }
        Ok(None)
    }
}

/// Sorted, as the protocol requires.
fn names(directory: &Path) -> Result<Vec<String>, Error> {
    let failed = |error| Error::input(directory, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.into_string().map_err(|name| {
            Error::input(&directory.join(name), "its name is not UTF-8, which the protocol needs")
        })?;
        names.push(name);
    }
    names.sort_unstable();
    Ok(names)
}

impl Found {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.directories.is_empty() && self.links.is_empty()
    }

    fn entries(&self, files: &[FoundFile], digests: &[Digest]) -> Vec<InputEntry> {
        let at = |name: &str| format!("{}{name}", self.path);
        let file = |(name, number): &(String, usize)| InputEntry::File {
            path: at(name),
            digest: digests[*number],
            is_executable: files[*number].is_executable(),
        };
        let directory = |(name, _): &(String, usize)| InputEntry::Directory { path: at(name) };
        let link =
            |(name, target): &(String, String)| InputEntry::Link { path: at(name), target: target.clone() };
        let files = self.files.iter().map(file);
        files.chain(self.directories.iter().map(directory)).chain(self.links.iter().map(link)).collect()
    }

    fn encoded(self, files: &[FoundFile], digests: &[Digest], done: &[Option<Digest>]) -> Vec<u8> {
        let file = |(name, number): (String, usize)| FileNode {
            name,
            digest: digests.get(number).map(digest::to_proto),
            is_executable: files[number].is_executable(),
            node_properties: None,
        };
        let below = |(name, number): (String, usize)| DirectoryNode {
            name,
            digest: done[number].as_ref().map(digest::to_proto),
        };
        let link = |(name, target)| SymlinkNode { name, target, node_properties: None };
        let directory = Directory {
            files: self.files.into_iter().map(file).collect(),
            directories: self.directories.into_iter().map(below).collect(),
            symlinks: self.links.into_iter().map(link).collect(),
            node_properties: None,
        };
        directory.encode_to_vec()
    }
}

/// On a few threads, each with one file open.
fn hash_all(files: &[FoundFile], progress: &Progress) -> Result<Vec<Digest>, Error> {
    let next = AtomicUsize::new(0);
    let read_some = || {
        let mut read = Vec::new();
        let take = || {
            let number = next.fetch_add(1, Ordering::Relaxed);
            files.get(number).map(|file| (number, file))
        };
        while let Some((number, file)) = take() {
            let digest = File::open(&file.path).and_then(|open| worker::digest_of(&open, FUNCTION));
            let digest = digest.map_err(|error| Error::input(&file.path, error))?;
            progress.advance(digest.size);
            read.push((number, digest));
        }
        Ok::<_, Error>(read)
    };
    let readers = std::thread::available_parallelism().map_or(1, usize::from);
    let readers = readers.min(MAX_READERS).min(files.len());
    let mut all = Vec::with_capacity(files.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..readers).map(|_| scope.spawn(read_some)).collect();
        for thread in threads {
            let died = |_| Error::input(Path::new(""), "a thread that reads inputs has failed");
            all.extend(thread.join().map_err(died)??);
        }
        Ok::<(), Error>(())
    })?;
    all.sort_unstable_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, digest)| digest).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn read(directory: &Path) -> Result<(Inputs, Digest), Error> {
        Inputs::read(directory, &Selection::default(), &Progress::silent())
    }

    fn directory(inputs: &Inputs, digest: &Digest) -> Directory {
        match &inputs.blobs[digest] {
            Source::Bytes(content) => Directory::decode(&content[..]).unwrap(),
            other => panic!("{other:?} is no directory"),
        }
    }

    #[test]
    fn r15_a_tree_has_its_names_in_order_with_modes_links_and_empty_directories() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("b"), "content").unwrap();
        fs::write(at("a"), "content").unwrap();
        fs::set_permissions(at("a"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(at("d/empty")).unwrap();
        symlink("nowhere", at("link")).unwrap();
        let (inputs, root) = read(dir.path()).unwrap();
        let top = directory(&inputs, &root);
        let files: Vec<_> = top.files.iter().map(|file| (file.name.as_str(), file.is_executable)).collect();
        assert_eq!(files, [("a", true), ("b", false)]);
        assert_eq!(top.files[0].digest, top.files[1].digest);
        assert_eq!((top.symlinks[0].name.as_str(), top.symlinks[0].target.as_str()), ("link", "nowhere"));
        let digest = top.directories[0].digest.as_ref().unwrap();
        let below = Digest::new(FUNCTION, &digest.hash, digest.size_bytes).unwrap();
        assert_eq!(directory(&inputs, &below).directories[0].name, "empty");
        assert_eq!((inputs.files, inputs.bytes), (2, 14));
        assert_eq!(read(dir.path()).unwrap().1, root, "the same content has the same digest");
    }

    #[test]
    fn what_is_no_file_is_refused_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("here")).unwrap();
        let error = read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("here: it is a socket"), "{error}");
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("not a directory"));
        assert!(read(&dir.path().join("gone")).unwrap_err().to_string().contains("gone"));
    }

    #[test]
    fn a_data_directory_stays_at_home() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("state");
        fs::create_dir_all(data.join("ledger")).unwrap();
        fs::write(data.join("lease.key"), "secret").unwrap();
        let (inputs, root) = read(dir.path()).unwrap();
        assert_eq!(inputs.left_out, [data]);
        assert_eq!(directory(&inputs, &root), Directory::default());
    }
}
