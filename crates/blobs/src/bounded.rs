//! A store in front of which only so many readers of large blobs stand at a time, over all connections: each
//! holds some pieces in memory, and a reader that takes its time holds them for long.
//!
//! Whoever comes when all places are taken waits a little and is then refused. A blob of one piece is gone as
//! soon as it is read, so it needs no place. Nothing else is changed.

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
/// How long a reader waits for a place.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Up to this size a blob comes in one piece.
const ONE_PIECE_BYTES: u64 = 256 << 10;

/// [`Blobs`] with a bound on readers. Cheap to clone.
#[derive(Clone)]
pub struct Bounded {
    blobs: Arc<dyn Blobs>,
    places: Arc<Semaphore>,
    limit: usize,
    max_wait: Duration,
}

impl Bounded {
    pub fn new(blobs: Arc<dyn Blobs>) -> Bounded {
        Bounded::with_limit(blobs, MAX_READS, MAX_WAIT)
    }

    /// With another bound.
    pub fn with_limit(blobs: Arc<dyn Blobs>, limit: usize, max_wait: Duration) -> Bounded {
        Bounded { blobs, places: Arc::new(Semaphore::new(limit)), limit, max_wait }
    }

    async fn place(&self) -> Result<OwnedSemaphorePermit> {
        match timeout(self.max_wait, self.places.clone().acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(Error::TooManyReads { limit: self.limit }),
        }
    }
}

impl Blobs for Bounded {
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
            let place = self.place().await?;
            let reader = self.blobs.read(tenant, digest, offset, limit).await?;
            Ok(Box::new(InPlace { reader, _place: place }) as Box<dyn BlobReader>)
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

    fn max_blob_bytes(&self) -> u64 {
        self.blobs.max_blob_bytes()
    }
}

/// A reader that has its place until it is dropped.
struct InPlace {
    reader: Box<dyn BlobReader>,
    _place: OwnedSemaphorePermit,
}

impl BlobReader for InPlace {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.reader.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Local, Options, Store};

    #[tokio::test]
    async fn a_reader_waits_for_a_place_and_is_then_refused() {
        let root = tempfile::tempdir().unwrap();
        let local = Local::new(Store::open(root.path(), Options::default()).unwrap());
        let (large, small) = (Bytes::from(vec![7; 300 << 10]), Bytes::from_static(b"small"));
        let digest = |content: &[u8]| Digest::of(DigestFunction::Sha256, content);
        let tenant = Tenant::new("t").unwrap();
        let put = vec![(digest(&large), large.clone()), (digest(&small), small.clone())];
        assert!(local.put_many(&tenant, put).await.iter().all(Result::is_ok));
        let bounded = Bounded::with_limit(Arc::new(local), 1, Duration::from_millis(10));
        let mut first = bounded.read(&tenant, digest(&large), 0, None).await.unwrap();
        assert!(first.next().await.unwrap().is_some());
        let refused = bounded.read(&tenant, digest(&large), 0, None).await;
        assert!(matches!(refused.err(), Some(Error::TooManyReads { limit: 1 })));
        assert!(bounded.read(&tenant, digest(&small), 0, None).await.is_ok(), "one piece needs no place");
        drop(first);
        assert!(bounded.read(&tenant, digest(&large), 0, None).await.is_ok());
    }
}
