//! Reads blobs, checking every byte before it leaves.

use std::{fs::File, io, sync::Arc};

use bytes::Bytes;

use super::{
    checksums::is_chunk,
    index::Key,
    inner::Inner,
    options::{CHUNK_BYTES, MAX_CACHED_READ_BYTES},
    pack::read_at,
    record::Placement,
    store::Store,
};
use crate::{Digest, Error, MAX_BATCH_BYTES, Result, Tenant};

/// A blob on its way out. It stays readable to the end, whatever is evicted meanwhile.
pub struct Reader {
    inner: Arc<Inner>,
    found: Found,
    digest: Digest,
    source: Source,
    /// The next byte to give, and the one to stop before.
    at: u64,
    end: u64,
}

/// What was read of the index, to name it when it turns out to be damaged.
#[derive(Clone, Copy)]
struct Found {
    key: Key,
    position: (u32, u32),
}

enum Source {
    Memory(Bytes),
    File { file: File, checksums: Bytes },
}

/// The record of a blob.
pub(super) enum Stored {
    Packed(Bytes),
    File { checksums: Bytes },
}

impl Reader {
    /// The next piece, of at most `CHUNK_BYTES`; `None` at the end.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let piece = match &self.source {
            Source::Memory(content) => content.slice(self.at as usize..self.end as usize),
            Source::File { file, checksums } => {
                let number = self.at / CHUNK_BYTES as u64;
                let start = number * CHUNK_BYTES as u64;
                let bytes = (self.digest.size - start).min(CHUNK_BYTES as u64) as usize;
                let mut chunk = Vec::with_capacity(bytes);
                let path = || self.inner.file_path_of(&self.found.key);
                read_at(file, &mut chunk, bytes, start).map_err(|error| Error::io("read", &path())(error))?;
                if chunk.len() != bytes || !is_chunk(checksums, number, &chunk) {
                    return Err(self.inner.damaged(&self.found, self.digest));
                }
                let stop = (self.end - start).min(bytes as u64) as usize;
                Bytes::from(chunk).slice((self.at - start) as usize..stop)
            }
        };
        self.at += piece.len() as u64;
        Ok(Some(piece))
    }
}

impl Store {
    /// Reads a blob from `offset`, at most `limit` bytes of it.
    pub fn read(&self, tenant: &Tenant, digest: &Digest, offset: u64, limit: Option<u64>) -> Result<Reader> {
        if offset > digest.size {
            return Err(Error::OutOfRange { offset, size: digest.size });
        }
        let end = limit.map_or(digest.size, |limit| offset.saturating_add(limit).min(digest.size));
        let inner = self.inner().clone();
        let (found, source) = inner.source(tenant, digest)?;
        Ok(Reader { inner, found, digest: *digest, source, at: offset, end })
    }

    /// Whole blobs, an answer for each; see [`crate::Blobs::get_many`].
    pub fn get_many(&self, tenant: &Tenant, digests: &[Digest]) -> Vec<Result<Bytes>> {
        let mut left = MAX_BATCH_BYTES;
        let get = |digest: &Digest| match left.checked_sub(digest.size) {
            Some(rest) => {
                let content = self.inner().get(tenant, digest)?;
                left = rest;
                Ok(content)
            }
            None => Err(Error::TooLarge {
                what: "a batch with a blob",
                size: digest.size,
                limit: MAX_BATCH_BYTES,
            }),
        };
        digests.iter().map(get).collect()
    }

    /// Whole small blobs, if all of them can be read without waiting for the disk. `None` says nothing about any of them.
    pub fn get_many_cached(&self, tenant: &Tenant, digests: &[Digest]) -> Option<Vec<Bytes>> {
        let total = digests.iter().fold(0u64, |total, digest| total.saturating_add(digest.size));
        if total > MAX_CACHED_READ_BYTES {
            return None;
        }
        digests.iter().map(|digest| self.inner().get_cached(tenant, digest)).collect()
    }
}

impl Inner {
    /// A small blob, if it is here and can be read without waiting for the disk. `None` says nothing.
    fn get_cached(&self, tenant: &Tenant, digest: &Digest) -> Option<Bytes> {
        if digest.is_empty_blob() {
            return Some(Bytes::new());
        }
        let location = self.index().locate(&self.key(tenant, digest)?)?;
        let is_packed = location.placement == Placement::Pack && location.size == digest.size;
        is_packed.then(|| location.pack.read_cached(location.offset, location.data_bytes))?
    }

    fn get(self: &Arc<Inner>, tenant: &Tenant, digest: &Digest) -> Result<Bytes> {
        let (found, source) = self.source(tenant, digest)?;
        if let Source::Memory(content) = source {
            return Ok(content);
        }
        let mut reader =
            Reader { inner: self.clone(), found, digest: *digest, source, at: 0, end: digest.size };
        let mut content = Vec::with_capacity(digest.size as usize);
        while let Some(piece) = reader.next_piece()? {
            content.extend_from_slice(&piece);
        }
        Ok(content.into())
    }

    /// A blob as it is stored.
    pub(super) fn stored(&self, tenant: &Tenant, digest: &Digest) -> Result<Stored> {
        Ok(match self.source(tenant, digest)?.1 {
            Source::Memory(content) => Stored::Packed(content),
            Source::File { checksums, .. } => Stored::File { checksums },
        })
    }

    fn source(&self, tenant: &Tenant, digest: &Digest) -> Result<(Found, Source)> {
        if digest.is_empty_blob() {
            let key = Key { tenant: 0, space: digest.function.into(), hash: digest.hash.0 };
            return Ok((Found { key, position: (0, 0) }, Source::Memory(Bytes::new())));
        }
        let key = self.key(tenant, digest).ok_or(Error::NotFound(*digest))?;
        let location = self.index().locate(&key).filter(|location| location.size == digest.size);
        let location = location.ok_or(Error::NotFound(*digest))?;
        let found = Found { key, position: (location.pack.number, location.offset) };
        let Some((_, data)) = location.pack.read(location.offset, location.data_bytes)? else {
            return Err(self.damaged(&found, *digest));
        };
        if location.placement == Placement::Pack {
            return Ok((found, Source::Memory(data)));
        }
        let path = self.file_path(tenant.fingerprint(), digest);
        match File::open(&path) {
            Ok(file) => Ok((found, Source::File { file, checksums: data })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The blob was evicted a moment ago, or the file was deleted from outside.
                self.take_out(&found.key, found.position);
                Err(Error::NotFound(*digest))
            }
            Err(error) => Err(Error::io("open", &path)(error)),
        }
    }

    /// Takes a blob out of the store because the disk did not keep it.
    fn damaged(&self, found: &Found, digest: Digest) -> Error {
        tracing::error!(%digest, "a blob was damaged on disk and is removed");
        self.take_out(&found.key, found.position);
        Error::Damaged(digest)
    }

    /// Takes out what this record says, unless another one stands for the name by now.
    pub fn take_out(&self, key: &Key, position: (u32, u32)) {
        if let Err(error) = self.writer().remove(self, key, position) {
            tracing::warn!(%error, "a removal could not be recorded");
        }
    }
}
