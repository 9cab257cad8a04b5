//! A content store whose lookups and bytes are counted. It changes nothing else.

use std::sync::Arc;

use blobs::{
    Begun, BlobReader, BlobWriter, Blobs, BoxFuture, Digest, DigestFunction, Error, Hash, Pinned, Progress,
    Result, Tenant, UploadRequest, WriteStatus,
};
use bytes::Bytes;
use futures_util::{FutureExt, TryFutureExt};

use super::{Metrics, looked};
use crate::convert::Limit;

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

impl Metrics {
    /// Counts what the tenant has no room for.
    fn stored<T>(&self, answer: &Result<T>) {
        if let Err(Error::TenantFull { .. }) = answer {
            self.limited(Limit::BlobBytes);
        }
    }
}

impl Blobs for CountedBlobs {
    fn find_missing<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Result<Vec<Digest>>> {
        let missing = self.inner.find_missing(tenant, digests);
        missing
            .inspect_ok(|missing| self.looked(digests.len().saturating_sub(missing.len()), missing.len()))
            .boxed()
    }

    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        function: DigestFunction,
        hash: Hash,
    ) -> BoxFuture<'a, Result<Option<Digest>>> {
        // Whoever finds a blob reads it next, and is counted then.
        let found = self.inner.find(tenant, function, hash);
        found.inspect_ok(|found| self.looked(0, usize::from(found.is_none()))).boxed()
    }

    fn get_many<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Vec<Result<Bytes>>> {
        let count = |answers: &Vec<Result<Bytes>>| {
            digests.iter().zip(answers).for_each(|(digest, answer)| self.read(answer, digest.size));
        };
        self.inner.get_many(tenant, digests).inspect(count).boxed()
    }

    fn put_many<'a>(
        &'a self,
        tenant: &'a Tenant,
        blobs: Vec<(Digest, Bytes)>,
    ) -> BoxFuture<'a, Vec<Result<()>>> {
        let sizes: Vec<u64> = blobs.iter().map(|(digest, _)| digest.size).collect();
        let count = move |answers: &Vec<Result<()>>| {
            answers.iter().for_each(|answer| self.metrics.stored(answer));
            let stored = sizes.iter().zip(answers).filter(|(_, answer)| answer.is_ok());
            self.metrics.0.content_written.inc_by(stored.map(|(size, _)| size).sum());
        };
        self.inner.put_many(tenant, blobs).inspect(count).boxed()
    }

    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        digest: Digest,
        offset: u64,
        limit: Option<u64>,
    ) -> BoxFuture<'a, Result<Box<dyn BlobReader>>> {
        let rest = digest.size.saturating_sub(offset);
        let bytes = limit.map_or(rest, |limit| limit.min(rest));
        self.inner.read(tenant, digest, offset, limit).inspect(move |reader| self.read(reader, bytes)).boxed()
    }

    fn write<'a>(&'a self, tenant: &'a Tenant, upload: UploadRequest) -> BoxFuture<'a, Result<Begun>> {
        let counted = |begun| match begun {
            Begun::Present => Begun::Present,
            Begun::Writer(inner) => {
                Begun::Writer(Box::new(CountedWriter { inner, metrics: self.metrics.clone() }))
            }
        };
        self.inner.write(tenant, upload).inspect(|begun| self.metrics.stored(begun)).map_ok(counted).boxed()
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

    fn promote<'a>(
        &'a self,
        staging_area: &'a Tenant,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.promote(staging_area, tenant, digests)
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
        let metrics = self.metrics.clone();
        self.inner.write(offset, piece).inspect(move |written| metrics.stored(written)).boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Digest>> {
        let CountedWriter { inner, metrics } = *self;
        let count = move |finished: &Result<Digest>| {
            metrics.stored(finished);
            metrics.0.content_written.inc_by(finished.as_ref().map_or(0, |digest| digest.size));
        };
        inner.finish().inspect(count).boxed()
    }

    fn leave(self: Box<Self>) -> BoxFuture<'static, Result<u64>> {
        self.inner.leave()
    }
}
