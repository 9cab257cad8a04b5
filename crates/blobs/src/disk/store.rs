//! A content store in a directory.

use std::{collections::HashSet, path::Path, sync::Arc, thread::JoinHandle, time::Instant};

use bytes::Bytes;
use foldhash::fast::RandomState;

use super::{
    eviction::Usage,
    identity::{OpenError, StoreDir},
    index::Key,
    inner::Inner,
    maintenance, open,
    options::{MAX_CACHED_READ_BYTES, MAX_LOOKUPS, Options},
    read::Reader,
    upload::Upload,
};
use crate::{
    ActionKey, CachedResult, Digest, DigestFunction, Hash, Origin, RawKey, Result, Serve, Tenant,
    UploadRequest, WriteStatus,
};

/// A handle; cheap to clone. Methods that touch the disk block, the others only look at memory and say so.
///
/// Dropping the last handle loses nothing that was acknowledged, no more than a killed process does; `close`
/// makes the next start faster and what was stored safe from a power loss.
#[derive(Clone)]
pub struct Store(Arc<Handle>);

struct Handle {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inner.signal.end();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say, and a panic in it was reported where it happened.
            let _ = thread.join();
        }
        self.inner.uploads.clear();
    }
}

impl Store {
    /// Opens the store in a directory, making one if the directory is missing or empty.
    pub fn open(path: impl AsRef<Path>, options: Options) -> std::result::Result<Store, OpenError> {
        let (path, options) = (path.as_ref(), options.bounded());
        let store_dir = StoreDir::open(path)?;
        let background = options.background;
        let inner = Arc::new(open::open(path, options, store_dir)?);
        let thread = if background {
            Some(maintenance::start(&inner).map_err(crate::Error::io("start the thread of", path))?)
        } else {
            None
        };
        inner.signal.wake();
        Ok(Store(Arc::new(Handle { inner, thread })))
    }

    /// Those of `digests` that are not here, once each, in order; marks the others used. From memory.
    pub fn find_missing(&self, tenant: &Tenant, digests: &[Digest]) -> Vec<Digest> {
        let mut missing = Vec::new();
        for digests in digests.chunks(MAX_LOOKUPS) {
            let index = self.inner().index();
            let (tenant, now) = (index.tenant(tenant), index.now());
            let is_here = |digest: &Digest| {
                tenant.is_some_and(|tenant| index.touch(tenant, digest, now)) || digest.is_empty_blob()
            };
            missing.extend(digests.iter().filter(|digest| !is_here(digest)));
        }
        if missing.len() > 1 {
            let mut seen: HashSet<_, RandomState> = HashSet::default();
            missing.retain(|digest| seen.insert(*digest));
        }
        missing
    }

    /// Whether all of `digests` are here; marks those that are used. From memory.
    pub fn contains_all(&self, tenant: &Tenant, digests: &[Digest]) -> bool {
        self.find_missing(tenant, digests).is_empty()
    }

    /// The whole name of a blob of which only the hash is known. From memory.
    pub fn find(&self, tenant: &Tenant, function: DigestFunction, hash: &Hash) -> Option<Digest> {
        self.inner().find(tenant, function, hash)
    }

    /// Keeps these from being evicted until the pin is dropped, also those that are yet to come. From memory.
    pub fn pin(&self, tenant: &Tenant, digests: &[Digest]) -> Pin {
        let mut index = self.inner().index_mut();
        let tenant = index.tenant_or_new(tenant.fingerprint());
        let key = |digest: &Digest| Key { tenant, space: digest.function.into(), hash: digest.hash.0 };
        let keys: Vec<Key> = digests.iter().map(key).collect();
        index.pin(&keys);
        Pin { inner: self.inner().clone(), keys }
    }

    /// Whole blobs, an answer for each; see [`crate::Blobs::get_many`].
    pub fn get_many(&self, tenant: &Tenant, digests: &[Digest]) -> Vec<Result<Bytes>> {
        self.inner().get_many(tenant, digests)
    }

    /// Whole small blobs, if all of them can be had without waiting for the disk. `None` says nothing about
    /// any of them.
    pub fn get_many_cached(&self, tenant: &Tenant, digests: &[Digest]) -> Option<Vec<Bytes>> {
        let total = digests.iter().fold(0u64, |total, digest| total.saturating_add(digest.size));
        if total > MAX_CACHED_READ_BYTES {
            return None;
        }
        digests.iter().map(|digest| self.inner().get_cached(tenant, digest)).collect()
    }

    /// Stores whole blobs, an answer for each; see [`crate::Blobs::put_many`].
    pub fn put_many(&self, tenant: &Tenant, blobs: &[(Digest, Bytes)]) -> Vec<Result<()>> {
        self.inner().put_many(tenant, blobs)
    }

    /// Reads a blob from `offset`, at most `limit` bytes of it.
    pub fn read(&self, tenant: &Tenant, digest: &Digest, offset: u64, limit: Option<u64>) -> Result<Reader> {
        self.inner().read(tenant, digest, offset, limit)
    }

    /// Begins or continues an upload; `None` if the blob is here already.
    pub fn write(&self, tenant: &Tenant, request: &UploadRequest) -> Result<Option<Upload>> {
        Upload::begin(self.inner(), tenant, request)
    }

    /// How far a named upload has come. From memory.
    pub fn write_status(&self, tenant: &Tenant, name: &str, digest: &Digest) -> WriteStatus {
        if self.inner().is_present(tenant, digest) {
            return WriteStatus { committed: digest.size, complete: true };
        }
        self.inner().uploads.status(tenant, name, *digest)
    }

    /// Makes `path`, which must not exist, a read-only file with the blob's content: a hard link where that
    /// is possible, else a copy. Linked content is not checked; whoever links it must not write to it.
    pub fn link_to(&self, tenant: &Tenant, digest: &Digest, path: &Path, executable: bool) -> Result<()> {
        self.inner().link_to(tenant, digest, path, executable)
    }

    /// See [`crate::ActionCache::get_result`].
    pub fn get_result(&self, tenant: &Tenant, key: &ActionKey, serve: Serve) -> Result<Option<CachedResult>> {
        self.inner().get_result(tenant, key, serve)
    }

    /// The same, if it can be told without waiting for the disk. `None` says nothing.
    pub fn get_result_cached(
        &self,
        tenant: &Tenant,
        key: &ActionKey,
        serve: Serve,
    ) -> Option<Option<CachedResult>> {
        self.inner().get_result_cached(tenant, key, serve)
    }

    /// See [`crate::ActionCache::put_result`].
    pub fn put_result(&self, tenant: &Tenant, key: &ActionKey, origin: Origin, result: &[u8]) -> Result<()> {
        self.inner().put_result(tenant, key, origin, result)
    }

    /// See [`crate::ActionCache::remove_result`].
    pub fn remove_result(&self, tenant: &Tenant, key: &ActionKey) -> Result<()> {
        self.inner().remove_result(tenant, key)
    }

    /// See [`crate::ActionCache::get_raw`].
    pub fn get_raw(&self, tenant: &Tenant, key: &RawKey) -> Result<Option<Digest>> {
        self.inner().get_raw(tenant, key)
    }

    /// See [`crate::ActionCache::put_raw`].
    pub fn put_raw(&self, tenant: &Tenant, key: &RawKey, body: &Digest) -> Result<()> {
        self.inner().put_raw(tenant, key, body)
    }

    /// The largest blob that is accepted.
    pub fn max_blob_bytes(&self) -> u64 {
        self.inner().options.max_blob_bytes
    }

    /// What is stored and how much room it takes. From memory.
    pub fn usage(&self) -> Usage {
        self.inner().usage()
    }

    /// Open uploads, those without a writer included.
    pub fn open_uploads(&self) -> usize {
        self.inner().uploads.len()
    }

    /// Does what is due: expires uploads, makes headroom, writes a checkpoint if one is wanted. A store with
    /// a thread of its own needs no help; a caller without one says what time it is.
    pub fn maintain(&self, now: Instant) {
        self.inner().maintain(now, false);
    }

    /// Makes what was stored so far safe from a power loss.
    pub fn checkpoint(&self) -> Result<()> {
        let _housekeeping = self.inner().keep_house();
        self.inner().checkpoint()
    }

    /// The last words of a clean shutdown. Other handles may go on, but need not.
    pub fn close(self) -> Result<()> {
        self.checkpoint()
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.0.inner
    }
}

/// Keeps blobs in the store while it lives.
pub struct Pin {
    inner: Arc<Inner>,
    keys: Vec<Key>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.inner.index_mut().unpin(&self.keys);
    }
}
