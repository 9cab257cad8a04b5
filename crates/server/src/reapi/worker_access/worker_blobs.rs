//! The content of a tenant as a worker identity sees it: a decorator of the content store. Blobs that it may not read get the
//! answer of blobs that do not exist, and the store is not asked for them.

use std::collections::{HashMap, HashSet};

use blobs::{
    Begun, BlobReader, BlobWriter, Blobs, BoxFuture, Digest, DigestFunction, Error, Expect, Hash, Pinned,
    Progress, Refusal, Result, Tenant, UploadRequest, WriteStatus,
};
use bytes::Bytes;

use super::lease_table::Holder;
use super::{Charge, Readable, WorkerAccess};

pub(super) struct WorkerBlobs {
    access: WorkerAccess,
    holder: Holder,
    staging_area: Tenant,
}

impl WorkerBlobs {
    pub(super) fn new(access: WorkerAccess, holder: Holder, tenant: &Tenant) -> WorkerBlobs {
        let staging_area = tenant.staging_area(&holder.identity);
        WorkerBlobs { access, holder, staging_area }
    }

    fn inner(&self) -> &dyn Blobs {
        &*self.access.0.blobs
    }

    /// Those of the digests that are not in the staging area, once each.
    async fn unstaged(&self, digests: &[Digest]) -> Result<Vec<Digest>> {
        self.inner().find_missing(&self.staging_area, digests).await
    }

    async fn missing(&self, tenant: &Tenant, digests: &[Digest]) -> Result<Vec<Digest>> {
        let mut missing = self.unstaged(digests).await?;
        if missing.is_empty() {
            return Ok(missing);
        }
        let Readable { hidden, .. } = self.access.readable(&self.holder, tenant, &missing).await?;
        let mut absent: HashSet<Digest> = hidden.into_iter().collect();
        let readable: Vec<Digest> =
            missing.iter().filter(|digest| !absent.contains(digest)).copied().collect();
        if !readable.is_empty() {
            absent.extend(self.inner().find_missing(tenant, &readable).await?);
        }
        missing.retain(|digest| absent.contains(digest));
        Ok(missing)
    }

    /// For each digest, where it may be read, or why it may not.
    async fn views<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &[Digest],
    ) -> Result<HashMap<Digest, Result<&'a Tenant>>> {
        let mut views: HashMap<Digest, Result<&'a Tenant>> =
            digests.iter().map(|digest| (*digest, Ok(&self.staging_area))).collect();
        let unstaged = self.unstaged(digests).await?;
        if unstaged.is_empty() {
            return Ok(views);
        }
        let Readable { hidden, refusal } = self.access.readable(&self.holder, tenant, &unstaged).await?;
        views.extend(unstaged.into_iter().map(|digest| (digest, Ok(tenant))));
        let why = |digest| Err(refusal.clone().unwrap_or(Error::NotFound(digest)));
        views.extend(hidden.into_iter().map(|digest| (digest, why(digest))));
        Ok(views)
    }

    async fn get(&self, tenant: &Tenant, digests: &[Digest]) -> Result<Vec<Result<Bytes>>> {
        let views = self.views(tenant, digests).await?;
        let mut found: HashMap<Digest, Result<Bytes>> = HashMap::new();
        // Another report of the same worker may move blobs from the staging area to the tenant meanwhile, and never back.
        for view in [&self.staging_area, tenant] {
            let is_wanted = |digest: &&Digest| match (views.get(digest), found.get(digest)) {
                (Some(Ok(first)), None) => *first == view,
                (Some(Ok(_)), Some(Err(Error::NotFound(_)))) => true,
                _ => false,
            };
            let wanted: HashSet<Digest> = digests.iter().filter(is_wanted).copied().collect();
            let wanted: Vec<Digest> = wanted.into_iter().collect();
            if !wanted.is_empty() {
                let answers = self.inner().get_many(view, &wanted).await;
                found.extend(wanted.into_iter().zip(answers));
            }
        }
        let answer = |digest: &Digest| match (found.get(digest), views.get(digest)) {
            (Some(answer), _) => answer.clone(),
            (None, Some(Err(why))) => Err(why.clone()),
            (None, _) => Err(Error::NotFound(*digest)),
        };
        Ok(digests.iter().map(answer).collect())
    }

    async fn put(&self, blobs: Vec<(Digest, Bytes)>) -> Result<Vec<Result<()>>> {
        let digests: Vec<Digest> = blobs.iter().map(|(digest, _)| *digest).collect();
        let fresh: HashSet<Digest> = self.unstaged(&digests).await?.into_iter().collect();
        let bytes = |digests: &mut dyn Iterator<Item = &Digest>| {
            digests.fold(0_u64, |sum, digest| sum.saturating_add(digest.size))
        };
        let charge = self.access.charge(&self.holder, bytes(&mut fresh.iter())).await?;
        let answers = self.inner().put_many(&self.staging_area, blobs).await;
        let is_stored = |answer: &Result<()>| answer.is_ok();
        let stored = digests.iter().zip(&answers).filter(|(_, answer)| is_stored(answer));
        let stored: HashSet<Digest> =
            stored.map(|(digest, _)| *digest).filter(|digest| fresh.contains(digest)).collect();
        charge.keep(bytes(&mut stored.iter()));
        Ok(answers)
    }

    async fn begin(&self, upload: UploadRequest) -> Result<Begun> {
        let Expect::Digest(digest) = upload.expect else {
            return Err(Error::refused(Refusal::Forbidden, "a worker uploads blobs by their digest only"));
        };
        let is_staged = self.unstaged(&[digest]).await?.is_empty();
        let charge = self.access.charge(&self.holder, if is_staged { 0 } else { digest.size }).await?;
        Ok(match self.inner().write(&self.staging_area, upload).await? {
            Begun::Present => Begun::Present,
            Begun::Writer(inner) => Begun::Writer(Box::new(ChargedWriter { inner, charge })),
        })
    }
}

impl Blobs for WorkerBlobs {
    fn find_missing<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Result<Vec<Digest>>> {
        Box::pin(self.missing(tenant, digests))
    }

    /// A worker names blobs by their digests.
    fn find<'a>(
        &'a self,
        _: &'a Tenant,
        _: DigestFunction,
        _: Hash,
    ) -> BoxFuture<'a, Result<Option<Digest>>> {
        Box::pin(async { Ok(None) })
    }

    fn get_many<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Vec<Result<Bytes>>> {
        Box::pin(async move {
            self.get(tenant, digests).await.unwrap_or_else(|error| vec![Err(error); digests.len()])
        })
    }

    fn put_many<'a>(&'a self, _: &'a Tenant, blobs: Vec<(Digest, Bytes)>) -> BoxFuture<'a, Vec<Result<()>>> {
        Box::pin(async move {
            let count = blobs.len();
            self.put(blobs).await.unwrap_or_else(|error| vec![Err(error); count])
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
            // Whether or not the blob exists, as the store answers.
            if offset > digest.size {
                return Err(Error::OutOfRange { offset, size: digest.size });
            }
            let mut views = self.views(tenant, &[digest]).await?;
            let view = views.remove(&digest).unwrap_or(Err(Error::NotFound(digest)))?;
            match self.inner().read(view, digest, offset, limit).await {
                Err(Error::NotFound(_)) if view != tenant => {
                    self.inner().read(tenant, digest, offset, limit).await
                }
                reader => reader,
            }
        })
    }

    fn write<'a>(&'a self, _: &'a Tenant, upload: UploadRequest) -> BoxFuture<'a, Result<Begun>> {
        Box::pin(self.begin(upload))
    }

    fn write_status<'a>(
        &'a self,
        _: &'a Tenant,
        name: &'a str,
        digest: Digest,
    ) -> BoxFuture<'a, WriteStatus> {
        self.inner().write_status(&self.staging_area, name, digest)
    }

    fn pin(&self, tenant: &Tenant, digests: &[Digest]) -> Pinned {
        Box::new([self.inner().pin(&self.staging_area, digests), self.inner().pin(tenant, digests)])
    }

    fn promote<'a>(
        &'a self,
        staging_area: &'a Tenant,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Result<()>> {
        self.inner().promote(staging_area, tenant, digests)
    }

    fn max_blob_bytes(&self) -> u64 {
        self.inner().max_blob_bytes()
    }
}

/// An upload that counts for a lease when it has become a blob.
struct ChargedWriter {
    inner: Box<dyn BlobWriter>,
    charge: Charge,
}

impl BlobWriter for ChargedWriter {
    fn committed(&self) -> u64 {
        self.inner.committed()
    }

    fn write(&mut self, offset: u64, piece: Bytes) -> BoxFuture<'_, Result<Progress>> {
        self.inner.write(offset, piece)
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Digest>> {
        let ChargedWriter { inner, charge } = *self;
        Box::pin(async move {
            let digest = inner.finish().await?;
            charge.keep(digest.size);
            Ok(digest)
        })
    }

    fn leave(self: Box<Self>) -> BoxFuture<'static, Result<u64>> {
        self.inner.leave()
    }
}
