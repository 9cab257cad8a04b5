//! The contents of outputs, by digest: in memory, or in the file where they were found.

use std::collections::HashMap;

use blobs::{Digest, DigestFunction};
use bytes::Bytes;

use execution::RelativePath;

/// Most bytes of outputs that one action keeps in memory between being named and being stored.
const MAX_KEPT_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Default)]
pub(crate) struct Found {
    contents: HashMap<Digest, Source>,
    kept_bytes: u64,
}

pub(crate) enum Source {
    Bytes(Bytes),
    /// A file below the input root.
    File(RelativePath),
    /// A file of the worker's own.
    Own(std::fs::File),
}

impl Found {
    /// Adds a content that is nowhere else.
    pub(crate) fn add_bytes(&mut self, function: DigestFunction, content: Vec<u8>) -> Digest {
        let digest = Digest::of(function, &content);
        self.kept_bytes += digest.size;
        self.contents.entry(digest).or_insert_with(|| Source::Bytes(content.into()));
        digest
    }

    /// Adds a file, whose content is kept if there is room.
    pub(crate) fn add_file(
        &mut self,
        digest: Digest,
        content: Option<Bytes>,
        path: impl FnOnce() -> RelativePath,
    ) {
        let source = match content {
            Some(content) if self.has_room_for(digest.size) => {
                self.kept_bytes += digest.size;
                Source::Bytes(content)
            }
            _ => Source::File(path()),
        };
        self.contents.entry(digest).or_insert(source);
    }

    pub(crate) fn add_own(&mut self, digest: Digest, file: std::fs::File) {
        self.contents.entry(digest).or_insert(Source::Own(file));
    }

    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        self.kept_bytes + bytes <= MAX_KEPT_BYTES
    }

    /// What has to be in the store. The empty content always is.
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
