//! Collects the declared outputs. A missing output is not an error (R48).

use std::io::Read;

use bazel_remote_apis::google::protobuf::{Timestamp, UInt32Value};
use blobs::{Digest, DigestFunction};
use bytes::Bytes;
use reapi_client::MAX_SMALL_BYTES;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::Collected;
use super::expected::{Expected, Kind, Output, Properties};
use super::output_blobs::OutputBlobs;
use super::tree;
use crate::Failure;
use crate::cache::verify::digest_of;
use crate::dirfd::{Directory, kind};
use execution::reapi::command::OutputDirectoryFormat;
use execution::reapi::{ActionResult, NodeProperties, OutputDirectory, OutputFile, OutputSymlink};
use execution::{RelativePath, digest, stays_within};

pub(super) struct Collector<'a> {
    pub expected: &'a Expected,
    root: &'a Directory,
    pub function: DigestFunction,
    pub blobs: OutputBlobs,
    result: ActionResult,
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        expected: &'a Expected,
        root: &'a Directory,
        function: DigestFunction,
    ) -> Collector<'a> {
        Collector { expected, root, function, blobs: OutputBlobs::default(), result: ActionResult::default() }
    }

    pub(super) fn collect(mut self) -> Result<Collected, Failure> {
        for output in &self.expected.outputs {
            self.output(output)?;
        }
        Ok(Collected { result: self.result, blobs: self.blobs })
    }

    fn output(&mut self, output: &Output) -> Result<(), Failure> {
        let path = &output.path;
        let Some((parent, name)) = path.split_last() else {
            // The input root itself.
            let root = self.root.descend(path).map_err(|error| failed(output, error))?;
            return self.directory(output, &root, path);
        };
        let directory = match self.root.descend(&parent) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(()),
            // A component is a file, which has no entries, or a link, which is not followed.
            Err(Errno::NOTDIR | Errno::LOOP) => return self.behind_no_directory(output, &parent),
            Err(error) => return Err(failed(output, error)),
        };
        let stat = match directory.stat(name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(failed(output, error)),
        };
        match (kind(&stat), output.kind) {
            (FileType::RegularFile, Kind::Any | Kind::File) => self.file(output, &directory, name, path),
            (FileType::Directory, Kind::Any | Kind::Directory) => {
                let directory = directory.directory(name).map_err(|error| failed(output, error))?;
                self.directory(output, &directory, path)
            }
            (FileType::Symlink, _) => {
                self.symlink(output, &directory, name, &stat, parent.components().len())
            }
            (FileType::RegularFile, Kind::Directory) => {
                Err(Failure::invalid_output(format!("the output directory {:?} is a file", output.text)))
            }
            (FileType::Directory, Kind::File) => {
                Err(Failure::invalid_output(format!("the output file {:?} is a directory", output.text)))
            }
            _ => Err(special(&output.text)),
        }
    }

    fn file(
        &mut self,
        output: &Output,
        directory: &Directory,
        name: &str,
        path: &RelativePath,
    ) -> Result<(), Failure> {
        let (digest, stat) = self.read(directory, name, || path.clone())?;
        self.result.output_files.push(OutputFile {
            path: output.text.clone(),
            digest: Some(digest::to_proto(&digest)),
            is_executable: is_executable(&stat),
            contents: Vec::new(),
            node_properties: properties(self.expected.properties, &stat),
        });
        Ok(())
    }

    fn directory(
        &mut self,
        output: &Output,
        directory: &Directory,
        path: &RelativePath,
    ) -> Result<(), Failure> {
        let tree = tree::read(self, directory, path)?;
        let format = self.expected.format;
        let root_directory_digest = match format {
            OutputDirectoryFormat::TreeOnly => None,
            OutputDirectoryFormat::DirectoryOnly | OutputDirectoryFormat::TreeAndDirectory => {
                for directory in &tree.directories {
                    self.blobs.add_bytes(self.function, directory.clone());
                }
                Some(digest::to_proto(&tree.root))
            }
        };
        let tree_digest = match format {
            OutputDirectoryFormat::DirectoryOnly => None,
            OutputDirectoryFormat::TreeOnly | OutputDirectoryFormat::TreeAndDirectory => {
                Some(digest::to_proto(&self.blobs.add_bytes(self.function, tree.encode())))
            }
        };
        self.result.output_directories.push(OutputDirectory {
            path: output.text.clone(),
            is_topologically_sorted: tree_digest.is_some(),
            tree_digest,
            root_directory_digest,
        });
        Ok(())
    }

    #[allow(deprecated, reason = "clients of version 2.0 look only there")]
    fn symlink(
        &mut self,
        output: &Output,
        directory: &Directory,
        name: &str,
        stat: &Stat,
        depth: usize,
    ) -> Result<(), Failure> {
        let link = OutputSymlink {
            path: output.text.clone(),
            target: self.target(directory, name, depth)?,
            node_properties: properties(self.expected.properties, stat),
        };
        match output.kind {
            Kind::Any => self.result.output_symlinks.push(link),
            Kind::File => self.result.output_file_symlinks.push(link),
            Kind::Directory => self.result.output_directory_symlinks.push(link),
        }
        Ok(())
    }

    /// The target of a link, if it is allowed (R49). It need not exist.
    pub(super) fn target(&self, directory: &Directory, name: &str, depth: usize) -> Result<String, Failure> {
        let target =
            directory.link_target(name).map_err(|error| Failure::io(format!("the link {name:?}"), error))?;
        let target = text(target, "the target of the symbolic link", name)?;
        if self.expected.allow_absolute_symlinks || stays_within(&target, depth) {
            Ok(target)
        } else {
            Err(Failure::invalid_output(format!(
                "the symbolic link {name:?} points out of the input root, to {target:?}"
            )))
        }
    }

    /// Reads a file. The digest is that of the bytes that were read.
    pub(super) fn read(
        &mut self,
        directory: &Directory,
        name: &str,
        path: impl FnOnce() -> RelativePath,
    ) -> Result<(Digest, Stat), Failure> {
        let io = |error: std::io::Error| Failure::io(format!("the output {name:?} could not be read"), error);
        let (mut file, stat) = directory.file(name).map_err(|error| match error {
            // It was a file a moment ago: a process replaces it.
            Errno::LOOP | Errno::INVAL | Errno::NXIO => special(name),
            error => io(error.into()),
        })?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size <= MAX_SMALL_BYTES && self.blobs.fits(size) {
            let mut content = Vec::with_capacity(usize::try_from(size + 1).unwrap_or(0));
            (&mut file).take(MAX_SMALL_BYTES + 1).read_to_end(&mut content).map_err(io)?;
            if content.len() as u64 <= MAX_SMALL_BYTES {
                let digest = Digest::of(self.function, &content);
                self.blobs.add_file(digest, Some(Bytes::from(content)), path);
                return Ok((digest, stat));
            }
        }
        let digest = digest_of(&file, self.function).map_err(io)?;
        self.blobs.add_file(digest, None, path);
        Ok((digest, stat))
    }

    fn behind_no_directory(&self, output: &Output, parent: &RelativePath) -> Result<(), Failure> {
        let mut directory =
            self.root.descend(&RelativePath::default()).map_err(|error| failed(output, error))?;
        for name in parent.components() {
            match directory.stat(name).map(|stat| kind(&stat)) {
                Ok(FileType::Symlink) => {
                    let message =
                        format!("the output {:?} lies behind the symbolic link {name:?}", output.text);
                    return Err(Failure::invalid_output(message));
                }
                Ok(FileType::Directory) => {
                    directory = directory.directory(name).map_err(|error| failed(output, error))?;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

/// A name or a target as the protocol encodes it.
pub(super) fn text(text: std::ffi::OsString, what: &str, of: &str) -> Result<String, Failure> {
    text.into_string()
        .map_err(|text| Failure::invalid_output(format!("{what} {of:?} is not UTF-8: {}", text.display())))
}

pub(super) fn special(name: &str) -> Failure {
    Failure::invalid_output(format!(
        "the output {name:?} is neither a file nor a directory nor a symbolic link"
    ))
}

pub(super) fn is_executable(stat: &Stat) -> bool {
    stat.st_mode & 0o111 != 0
}

/// Permission bits only: an output must not change who runs it (X12).
pub(super) fn properties(wanted: Properties, stat: &Stat) -> Option<NodeProperties> {
    if wanted == Properties::default() {
        return None;
    }
    let mtime = Timestamp { seconds: stat.st_mtime, nanos: i32::try_from(stat.st_mtime_nsec).unwrap_or(0) };
    Some(NodeProperties {
        properties: Vec::new(),
        mtime: wanted.modified.then_some(mtime),
        unix_mode: wanted.unix_mode.then_some(UInt32Value { value: stat.st_mode & 0o777 }),
    })
}

fn failed(output: &Output, error: Errno) -> Failure {
    Failure::io(format!("the output {:?} could not be read", output.text), error)
}
