//! The state that all parts of a store share.
//!
//! Locks are taken in this order: `housekeeping`, `writer`, `index`. The writer's lock serialises every
//! change; readers need only the index, and never wait for the disk while they hold it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    eviction::Totals,
    identity::{FILES, StoreDir, TEMP},
    index::{Index, Key},
    maintenance::Signal,
    options::Options,
    record::Space,
    tenant_quota::UploadingBytes,
    uploads::Uploads,
    writer::Writer,
};
use crate::{Digest, Error, Hash, Result, Tenant};

pub struct Inner {
    pub root: PathBuf,
    pub options: Options,
    pub store_dir: StoreDir,
    pub totals: Totals,
    pub uploads: Uploads,
    pub uploading: UploadingBytes,
    pub signal: Arc<Signal>,
    /// One thread evicts or cleans at a time.
    pub housekeeping: Mutex<()>,
    pub(super) writer: Mutex<Writer>,
    pub(super) index: RwLock<Index>,
    pub(super) next_temp: AtomicU64,
}

impl Inner {
    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn keep_house(&self) -> MutexGuard<'_, ()> {
        self.housekeeping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a blob can be read; marks it used.
    pub fn is_present(&self, tenant: &Tenant, digest: &Digest) -> bool {
        if digest.is_empty_blob() {
            return true;
        }
        let index = self.index();
        index.tenant(tenant).is_some_and(|tenant| index.touch(tenant, digest, index.now()))
    }

    /// The name of a blob in the index; `None` if its tenant never had one.
    pub fn key(&self, tenant: &Tenant, digest: &Digest) -> Option<Key> {
        self.key_in(tenant, digest.function.into(), &digest.hash)
    }

    pub fn key_in(&self, tenant: &Tenant, space: Space, hash: &Hash) -> Option<Key> {
        let tenant = self.index().tenant(tenant)?;
        Some(Key { tenant, space, hash: hash.0 })
    }

    /// The path of a blob that has a file of its own.
    pub fn file_path(&self, tenant: [u8; 16], digest: &Digest) -> PathBuf {
        file_path(&self.root, tenant, digest.function.into(), &digest.hash.0)
    }

    pub fn file_path_of(&self, key: &Key) -> PathBuf {
        let fingerprint = self.index().fingerprint(key.tenant);
        file_path(&self.root, fingerprint, key.space, &key.hash)
    }

    /// A path that was not used since the store was opened.
    pub fn temp_path(&self) -> PathBuf {
        self.root.join(TEMP).join(format!("{:016x}", self.next_temp.fetch_add(1, Ordering::Relaxed)))
    }

    /// Renames a file, and creates the directory of the new name if it is missing.
    pub fn rename_into_place(&self, from: &Path, to: &Path) -> Result<()> {
        match fs::rename(from, to) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if let Some(parent) = to.parent() {
                    fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
                }
                fs::rename(from, to).map_err(Error::io("rename", from))
            }
            result => result.map_err(Error::io("rename", from)),
        }
    }

    /// Makes everything written so far survive a power loss.
    pub fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(&self.store_dir.directory)
            .map_err(|errno| Error::io("sync the file system of", &self.root)(errno.into()))
    }
}

pub(super) fn file_path(root: &Path, tenant: [u8; 16], space: Space, hash: &[u8; 32]) -> PathBuf {
    let function = space.function().map_or("none", |function| function.name());
    let tenant = format!("{:032x}", u128::from_be_bytes(tenant));
    let shard = format!("{:02x}", hash[0]);
    root.join(FILES).join(tenant).join(shard).join(format!("{function}-{}", Hash(*hash)))
}
