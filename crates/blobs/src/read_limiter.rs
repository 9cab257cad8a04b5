//! Limits the number of concurrent readers of large blobs, over all connections: each reader holds some pieces in
//! memory, and a slow reader holds them for long.
//!
//! A reader that finds no permit waits for a short time and is then refused. A blob of one piece is gone as soon as the
//! blob is read, so its reader needs no permit. All other calls pass through.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{
    Begun, BlobReader, Blobs, BoxFuture, Digest, DigestFunction, Error, Hash, Pinned, Result, Tenant,
    UploadRequest, WriteStatus,
};

/// Most readers of large blobs at a time. Each holds about a megabyte.
const MAX_READS: usize = 512;
/// How long a reader waits for a permit.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Up to this size a blob comes in one piece.
const ONE_PIECE_BYTES: u64 = 256 << 10;

/// [`Blobs`] with a limit on concurrent readers. Cheap to clone.
#[derive(Clone)]
pub struct ReadLimiter {
    blobs: Arc<dyn Blobs>,
    permits: Arc<Semaphore>,
    limit: usize,
    max_wait: Duration,
}

impl ReadLimiter {
    pub fn new(blobs: Arc<dyn Blobs>) -> ReadLimiter {
        ReadLimiter::with_limit(blobs, MAX_READS, MAX_WAIT)
    }

    /// With another limit.
    pub fn with_limit(blobs: Arc<dyn Blobs>, limit: usize, max_wait: Duration) -> ReadLimiter {
        ReadLimiter { blobs, permits: Arc::new(Semaphore::new(limit)), limit, max_wait }
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit> {
        match timeout(self.max_wait, self.permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(Error::TooManyReads { limit: self.limit }),
        }
    }
}

impl Blobs for ReadLimiter {
    fn find_missing<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Result<Vec<Digest>>> {
        self.blobs.find_missing(tenant, digests)
    }

    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        function: DigestFunction,
        hash: Hash,
    ) -> BoxFuture<'a, Result<Option<Digest>>> {
        self.blobs.find(tenant, function, hash)
    }

    fn get_many<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Vec<Result<Bytes>>> {
        self.blobs.get_many(tenant, digests)
    }

    fn put_many<'a>(
        &'a self,
        tenant: &'a Tenant,
        blobs: Vec<(Digest, Bytes)>,
    ) -> BoxFuture<'a, Vec<Result<()>>> {
        self.blobs.put_many(tenant, blobs)
    }

    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        digest: Digest,
        offset: u64,
        limit: Option<u64>,
    ) -> BoxFuture<'a, Result<Box<dyn BlobReader>>> {
        if digest.size <= ONE_PIECE_BYTES {
            return self.blobs.read(tenant, digest, offset, limit);
        }
        Box::pin(async move {
            let permit = self.permit().await?;
            let reader = self.blobs.read(tenant, digest, offset, limit).await?;
            Ok(Box::new(LimitedReader { reader, _permit: permit }) as Box<dyn BlobReader>)
        })
    }

    fn write<'a>(&'a self, tenant: &'a Tenant, upload: UploadRequest) -> BoxFuture<'a, Result<Begun>> {
        self.blobs.write(tenant, upload)
    }

    fn write_status<'a>(
        &'a self,
        tenant: &'a Tenant,
        name: &'a str,
        digest: Digest,
    ) -> BoxFuture<'a, WriteStatus> {
        self.blobs.write_status(tenant, name, digest)
    }

    fn pin(&self, tenant: &Tenant, digests: &[Digest]) -> Pinned {
        self.blobs.pin(tenant, digests)
    }

    fn promote<'a>(
        &'a self,
        staging_area: &'a Tenant,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Result<()>> {
        self.blobs.promote(staging_area, tenant, digests)
    }

    fn max_blob_bytes(&self) -> u64 {
        self.blobs.max_blob_bytes()
    }
}

/// A reader that holds its permit until it is dropped.
struct LimitedReader {
    reader: Box<dyn BlobReader>,
    _permit: OwnedSemaphorePermit,
}

impl BlobReader for LimitedReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.reader.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Local, Options, Store};

    #[tokio::test]
    async fn a_reader_waits_for_a_permit_and_is_then_refused() {
        let root = tempfile::tempdir().unwrap();
        let local = Local::new(Store::open(root.path(), Options::default()).unwrap());
        let (large, small) = (Bytes::from(vec![7; 300 << 10]), Bytes::from_static(b"small"));
        let digest = |content: &[u8]| Digest::of(DigestFunction::Sha256, content);
        let tenant = Tenant::new("t").unwrap();
        let put = vec![(digest(&large), large.clone()), (digest(&small), small.clone())];
        assert!(local.put_many(&tenant, put).await.iter().all(Result::is_ok));
        let limiter = ReadLimiter::with_limit(Arc::new(local), 1, Duration::from_millis(10));
        let mut first = limiter.read(&tenant, digest(&large), 0, None).await.unwrap();
        assert!(first.next().await.unwrap().is_some());
        let refused = limiter.read(&tenant, digest(&large), 0, None).await;
        assert!(matches!(refused.err(), Some(Error::TooManyReads { limit: 1 })));
        assert!(limiter.read(&tenant, digest(&small), 0, None).await.is_ok(), "one piece needs no permit");
        drop(first);
        assert!(limiter.read(&tenant, digest(&large), 0, None).await.is_ok());
    }
}
