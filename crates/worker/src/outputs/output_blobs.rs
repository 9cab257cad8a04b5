//! The contents of outputs by digest: in memory, or in the files where they were found.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use blobs::{Digest, DigestFunction};
use bytes::Bytes;

use super::upload::open_file;
use execution::RelativePath;

/// Most bytes of outputs of one action that are in memory, from hashing until its report is answered.
const MAX_BUFFERED_BYTES: u64 = 16 * 1024 * 1024;
/// Most files of one action that are open until its report is answered.
const MAX_KEPT_FILES: usize = 64;

#[derive(Default)]
pub(crate) struct OutputBlobs {
    contents: HashMap<Digest, Source>,
    buffered_bytes: u64,
}

pub(crate) enum Source {
    Bytes(Bytes),
    /// A file below the input root.
    File(RelativePath),
    Own(File),
}

impl OutputBlobs {
    /// Adds a content that no file has.
    pub(crate) fn add_bytes(&mut self, function: DigestFunction, content: Vec<u8>) -> Digest {
        let digest = Digest::of(function, &content);
        self.buffered_bytes += digest.size;
        self.contents.entry(digest).or_insert_with(|| Source::Bytes(content.into()));
        digest
    }

    /// Adds a file, with its content if the buffer has capacity.
    pub(crate) fn add_file(
        &mut self,
        digest: Digest,
        content: Option<Bytes>,
        path: impl FnOnce() -> RelativePath,
    ) {
        let source = match content {
            Some(content) if self.fits(digest.size) => {
                self.buffered_bytes += digest.size;
                Source::Bytes(content)
            }
            _ => Source::File(path()),
        };
        self.contents.entry(digest).or_insert(source);
    }

    pub(crate) fn add_own(&mut self, digest: Digest, file: File) {
        self.contents.entry(digest).or_insert(Source::Own(file));
    }

    pub(crate) fn fits(&self, bytes: u64) -> bool {
        self.buffered_bytes + bytes <= MAX_BUFFERED_BYTES
    }

    /// The contents that the store must have. It always has the empty content.
    pub(crate) fn digests(&self) -> Vec<Digest> {
        let mut digests: Vec<Digest> =
            self.contents.keys().filter(|digest| digest.size > 0).copied().collect();
        digests.sort_unstable();
        digests
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<&Source> {
        self.contents.get(digest)
    }

    /// Whether a content is in a file that a name leads to.
    pub(crate) fn has_names(&self) -> bool {
        self.contents.values().any(|source| matches!(source, Source::File(_)))
    }

    /// Opens the files, so that their content outlives their names. Files beyond the limit are given up. Blocking.
    pub(crate) fn open_files(&mut self, input_root: &Path) {
        let mut kept = 0;
        self.contents.retain(|_, source| match source {
            Source::File(path) if kept < MAX_KEPT_FILES => match open_file(input_root, path) {
                Ok(file) => {
                    kept += 1;
                    *source = Source::Own(file);
                    true
                }
                Err(_) => false,
            },
            Source::File(_) => false,
            Source::Bytes(_) | Source::Own(_) => true,
        });
    }
}
