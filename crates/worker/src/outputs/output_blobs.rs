//! The contents of outputs by digest: in memory, or in the files where they were found.

use std::collections::HashMap;

use blobs::{Digest, DigestFunction};
use bytes::Bytes;

use execution::RelativePath;

/// Most bytes of outputs of one action that are in memory between hashing and upload.
const MAX_BUFFERED_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Default)]
pub(crate) struct OutputBlobs {
    contents: HashMap<Digest, Source>,
    buffered_bytes: u64,
}

pub(crate) enum Source {
    Bytes(Bytes),
    /// A file below the input root.
    File(RelativePath),
    Own(std::fs::File),
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

    pub(crate) fn add_own(&mut self, digest: Digest, file: std::fs::File) {
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

    pub(crate) fn take(&mut self, digest: &Digest) -> Option<Source> {
        self.contents.remove(digest)
    }
}
