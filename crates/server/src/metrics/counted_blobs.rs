//! A content store whose lookups and bytes are counted. It changes nothing else.

use std::sync::Arc;

use blobs::{
    Begun, BlobReader, BlobWriter, Blobs, BoxFuture, Digest, DigestFunction, Error, Hash, Pinned, Progress,
    Result, Tenant, UploadRequest, WriteStatus,
};
use bytes::Bytes;

use super::{Metrics, looked};

pub(super) struct CountedBlobs {
    pub inner: Arc<dyn Blobs>,
    pub metrics: Metrics,
}

impl CountedBlobs {
    fn looked(&self, hits: usize, misses: usize) {
        looked(&self.metrics.0.content_lookups, hits, misses);
    }

    /// A blob that was read, or is not there; other errors say nothing about that.
    fn read<T>(&self, answer: &Result<T>, bytes: u64) {
        match answer {
            Ok(_) => {
                self.looked(1, 0);
                self.metrics.0.content_read.inc_by(bytes);
            }
            Err(Error::NotFound(_)) => self.looked(0, 1),
            Err(_) => {}
        }
    }
}

impl Blobs for CountedBlobs {
    fn find_missing<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Result<Vec<Digest>>> {
        Box::pin(async move {
            let missing = self.inner.find_missing(tenant, digests).await?;
            self.looked(digests.len().saturating_sub(missing.len()), missing.len());
            Ok(missing)
        })
    }

    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        function: DigestFunction,
        hash: Hash,
    ) -> BoxFuture<'a, Result<Option<Digest>>> {
        // Whoever finds a blob reads it next, and is counted then.
        Box::pin(async move {
            let found = self.inner.find(tenant, function, hash).await?;
            self.looked(0, usize::from(found.is_none()));
            Ok(found)
        })
    }

    fn get_many<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Vec<Result<Bytes>>> {
        Box::pin(async move {
            let answers = self.inner.get_many(tenant, digests).await;
            for (digest, answer) in digests.iter().zip(&answers) {
                self.read(answer, digest.size);
            }
            answers
        })
    }

    fn put_many<'a>(
        &'a self,
        tenant: &'a Tenant,
        blobs: Vec<(Digest, Bytes)>,
    ) -> BoxFuture<'a, Vec<Result<()>>> {
        Box::pin(async move {
            let sizes: Vec<u64> = blobs.iter().map(|(digest, _)| digest.size).collect();
            let answers = self.inner.put_many(tenant, blobs).await;
            let stored = sizes.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
            self.metrics.0.content_written.inc_by(stored.map(|(size, _)| size).sum());
            answers
        })
    }

    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        digest: Digest,
        offset: u64,
        limit: Option<u64>,
    ) -> BoxFuture<'a, Result<Box<dyn BlobReader>>> {
        Box::pin(async move {
            let reader = self.inner.read(tenant, digest, offset, limit).await;
            let rest = digest.size.saturating_sub(offset);
            self.read(&reader, limit.map_or(rest, |limit| limit.min(rest)));
            reader
        })
    }

    fn write<'a>(&'a self, tenant: &'a Tenant, upload: UploadRequest) -> BoxFuture<'a, Result<Begun>> {
        Box::pin(async move {
            Ok(match self.inner.write(tenant, upload).await? {
                Begun::Present => Begun::Present,
                Begun::Writer(inner) => {
                    Begun::Writer(Box::new(CountedWriter { inner, metrics: self.metrics.clone() }))
                }
            })
        })
    }

    fn write_status<'a>(
        &'a self,
        tenant: &'a Tenant,
        name: &'a str,
        digest: Digest,
    ) -> BoxFuture<'a, WriteStatus> {
        self.inner.write_status(tenant, name, digest)
    }

    fn pin(&self, tenant: &Tenant, digests: &[Digest]) -> Pinned {
        self.inner.pin(tenant, digests)
    }

    fn max_blob_bytes(&self) -> u64 {
        self.inner.max_blob_bytes()
    }
}

/// Counts an upload when it has become a blob.
struct CountedWriter {
    inner: Box<dyn BlobWriter>,
    metrics: Metrics,
}

impl BlobWriter for CountedWriter {
    fn committed(&self) -> u64 {
        self.inner.committed()
    }

    fn write(&mut self, offset: u64, piece: Bytes) -> BoxFuture<'_, Result<Progress>> {
        self.inner.write(offset, piece)
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Digest>> {
        Box::pin(async move {
            let digest = self.inner.finish().await?;
            self.metrics.0.content_written.inc_by(digest.size);
            Ok(digest)
        })
    }

    fn leave(self: Box<Self>) -> BoxFuture<'static, Result<u64>> {
        self.inner.leave()
    }
}
