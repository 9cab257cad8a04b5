//! A content store whose lookups stand still while a gate is closed.

use std::sync::Arc;

use blobs::{
    Begun, BlobReader, Blobs, BoxFuture, Digest, DigestFunction, Hash, Pinned, Result, Tenant, UploadRequest,
    WriteStatus,
};
use bytes::Bytes;
use tokio::sync::watch;

/// Opens and closes the lookups, and counts those that stand still. Cheap to clone: clones share the gate.
#[derive(Clone)]
pub(crate) struct Gate(Arc<watch::Sender<(bool, usize)>>);

impl Default for Gate {
    fn default() -> Gate {
        Gate(Arc::new(watch::Sender::new((true, 0))))
    }
}

impl Gate {
    pub(crate) fn set_open(&self, is_open: bool) {
        self.0.send_modify(|state| state.0 = is_open);
    }

    /// Waits until so many lookups stand still at the same time.
    pub(crate) async fn waiting(&self, lookups: usize) {
        self.0.subscribe().wait_for(|state| state.1 == lookups).await.unwrap();
    }

    async fn pass(&self) {
        self.0.send_modify(|state| state.1 += 1);
        let _leave = Leave(self);
        self.0.subscribe().wait_for(|state| state.0).await.unwrap();
    }
}

struct Leave<'a>(&'a Gate);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.1 -= 1);
    }
}

pub(crate) struct StallingBlobs {
    pub inner: Arc<dyn Blobs>,
    pub gate: Gate,
}

impl Blobs for StallingBlobs {
    fn find_missing<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Result<Vec<Digest>>> {
        Box::pin(async move {
            self.gate.pass().await;
            self.inner.find_missing(tenant, digests).await
        })
    }

    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        function: DigestFunction,
        hash: Hash,
    ) -> BoxFuture<'a, Result<Option<Digest>>> {
        self.inner.find(tenant, function, hash)
    }

    fn get_many<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Vec<Result<Bytes>>> {
        self.inner.get_many(tenant, digests)
    }

    fn put_many<'a>(
        &'a self,
        tenant: &'a Tenant,
        blobs: Vec<(Digest, Bytes)>,
    ) -> BoxFuture<'a, Vec<Result<()>>> {
        self.inner.put_many(tenant, blobs)
    }

    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        digest: Digest,
        offset: u64,
        limit: Option<u64>,
    ) -> BoxFuture<'a, Result<Box<dyn BlobReader>>> {
        self.inner.read(tenant, digest, offset, limit)
    }

    fn write<'a>(&'a self, tenant: &'a Tenant, upload: UploadRequest) -> BoxFuture<'a, Result<Begun>> {
        self.inner.write(tenant, upload)
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
