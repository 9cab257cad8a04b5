//! A content store in a directory.

use std::{collections::HashSet, path::Path, sync::Arc, thread::JoinHandle, time::Instant};

use foldhash::fast::RandomState;

use super::{
    identity::{OpenError, StoreDir},
    index::Key,
    inner::Inner,
    maintenance, open,
    options::{MAX_LOOKUPS, Options},
    upload::Upload,
};
use crate::{Digest, DigestFunction, Hash, Result, Tenant, UploadRequest, WriteStatus};

/// A handle; cheap to clone. Methods that touch the disk block; the others say that they read memory only.
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

    /// The largest blob that is accepted.
    pub fn max_blob_bytes(&self) -> u64 {
        self.inner().options.max_blob_bytes
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

    /// The last call of a clean shutdown. Other handles may still be used.
    pub fn close(self) -> Result<()> {
        self.checkpoint()
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
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
