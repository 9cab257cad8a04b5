//! Keeps each tenant within the bytes that it may have: beyond them its own least recently used blobs and cache entries are evicted,
//! and what still does not fit is refused. What other tenants have is not touched.

use std::{
    collections::HashMap,
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    index::Key,
    inner::Inner,
    record::{HEADER_BYTES, Placement},
    writer::{Item, Writer},
};
use crate::{Error, Result, Tenant, tenant::is_staging};

/// One part in so many of a quota is made free at a time, so that the search for the oldest entries is rare.
const HEADROOM_SHARE: u64 = 16;

/// The most bytes of blobs and entries that tenants may have; no limit by default.
#[derive(Clone, Debug, Default)]
pub struct TenantQuotas {
    others: Option<u64>,
    tenants: HashMap<[u8; 16], Option<u64>>,
}

impl TenantQuotas {
    /// The quota of these tenants, and of all others; none is no limit.
    pub fn new(
        others: Option<u64>,
        tenants: impl IntoIterator<Item = (Tenant, Option<u64>)>,
    ) -> TenantQuotas {
        let tenants = tenants.into_iter().map(|(tenant, quota)| (tenant.fingerprint(), quota));
        TenantQuotas { others, tenants: tenants.collect() }
    }

    fn of(&self, tenant: &[u8; 16]) -> Option<u64> {
        // Whose staging area it is cannot be seen, so none has more than the tenant that may have most.
        if is_staging(tenant) {
            let all = self.tenants.values().chain([&self.others]).copied();
            return all.collect::<Option<Vec<u64>>>()?.into_iter().max();
        }
        if self.tenants.is_empty() {
            return self.others;
        }
        self.tenants.get(tenant).copied().unwrap_or(self.others)
    }
}

/// The bytes that uploads of tenants with a quota have reserved.
#[derive(Default)]
pub struct UploadingBytes(Mutex<HashMap<[u8; 16], u64>>);

impl UploadingBytes {
    fn of(&self, tenant: &[u8; 16]) -> u64 {
        self.lock().get(tenant).copied().unwrap_or(0)
    }

    fn add(&self, tenant: [u8; 16], bytes: u64) {
        *self.lock().entry(tenant).or_default() += bytes;
    }

    fn remove(&self, tenant: [u8; 16], bytes: u64) {
        let mut uploading = self.lock();
        if let Some(held) = uploading.get_mut(&tenant) {
            *held = held.saturating_sub(bytes);
            if *held == 0 {
                uploading.remove(&tenant);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 16], u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Takes bytes of the cap for an upload, within the quota of its tenant.
    pub fn reserve_upload(&self, tenant: [u8; 16], bytes: u64) -> Result<()> {
        self.admit(tenant, bytes)?;
        self.reserve_bytes(bytes)?;
        if self.options.tenant_quotas.of(&tenant).is_some() {
            self.uploading.add(tenant, bytes);
        }
        Ok(())
    }

    /// Gives back what an upload has taken.
    pub fn release_upload(&self, tenant: [u8; 16], bytes: u64) {
        self.totals.release(bytes);
        if bytes > 0 && self.options.tenant_quotas.of(&tenant).is_some() {
            self.uploading.remove(tenant, bytes);
        }
    }

    /// Refuses an upload of a size that can never fit into the quota of its tenant.
    pub fn check_announced(&self, tenant: &Tenant, size: u64) -> Result<()> {
        match self.options.tenant_quotas.of(&tenant.fingerprint()) {
            Some(quota) if size > quota => Err(Error::TenantFull { needed: size, quota }),
            _ => Ok(()),
        }
    }

    /// Makes room for so many bytes of a tenant within its quota. Uploads that arrive at once may together exceed it a little.
    pub fn admit(&self, tenant: [u8; 16], bytes: u64) -> Result<()> {
        let Some(quota) = self.options.tenant_quotas.of(&tenant) else { return Ok(()) };
        let full = || Error::TenantFull { needed: bytes, quota };
        let short = || self.bytes_of(&tenant).saturating_add(bytes).saturating_sub(quota);
        if short() == 0 {
            return Ok(());
        }
        // However much is evicted, what is on its way takes this much.
        if self.uploading.of(&tenant).saturating_add(bytes) > quota {
            return Err(full());
        }
        let _housekeeping = self.keep_house();
        // Another writer may have made the room meanwhile.
        if let short @ 1.. = short() {
            self.evict_of(&tenant, short + quota / HEADROOM_SHARE);
        }
        if short() == 0 { Ok(()) } else { Err(full()) }
    }

    fn bytes_of(&self, tenant: &[u8; 16]) -> u64 {
        self.index().bytes_of(tenant) + self.uploading.of(tenant)
    }

    /// Evicts the least recently used blobs and cache entries of a tenant, so many bytes of them if there are. The caller
    /// holds `housekeeping`.
    fn evict_of(&self, tenant: &[u8; 16], bytes: u64) {
        // The search reads the whole index, which a tenant must not repeat in vain.
        if !self.index().may_evict_of(tenant) {
            return;
        }
        let oldest = self.index().least_used_of(tenant, bytes);
        let entries = oldest.keys.iter().filter(|key| key.space.function().is_none()).count();
        let records = (entries * HEADER_BYTES) as u64;
        let reservation = (entries > 0).then(|| self.reserve_by_eviction(records)).transpose();
        let mut gone = Vec::new();
        {
            let mut writer = self.writer();
            let buried = reservation.and_then(|_reserved| self.bury_entries(&mut writer, &oldest.keys));
            for key in &oldest.keys {
                if buried.is_ok() || key.space.function().is_some() {
                    let taken = self.index_mut().remove_unpinned(key);
                    gone.extend(taken.and_then(|taken| writer.forget(self, &taken)));
                }
            }
            match buried {
                Ok(()) if oldest.is_all => self.index_mut().exhausted(tenant, &oldest),
                Ok(()) => {}
                Err(error) => tracing::warn!(%error, "no cache entries are evicted for a tenant's quota"),
            }
        }
        for path in gone {
            let _ = fs::remove_file(path);
        }
    }

    /// Records that these cache entries do not come back. Content may: it is still right.
    fn bury_entries(&self, writer: &mut Writer, keys: &[Key]) -> Result<()> {
        let items: Vec<Item<'_>> = {
            let index = self.index();
            let is_entry = |key: &&Key| key.space.function().is_none() && index.position(key).is_some();
            let burial = |key: &Key| Item {
                tenant: index.fingerprint(key.tenant),
                space: key.space,
                hash: key.hash,
                placement: Placement::Removed,
                size: 0,
                data: &[],
            };
            keys.iter().filter(is_entry).map(burial).collect()
        };
        writer.append(self, &items)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Digest, DigestFunction, Options, Store};

    /// Regression: every refused upload of a tenant with nothing to evict searched the whole index again.
    #[test]
    fn an_eviction_that_found_too_little_is_not_repeated_before_something_changes() {
        let root = tempfile::tempdir().unwrap();
        let tenant = Tenant::new("small").unwrap();
        let tenant_quotas = TenantQuotas::new(Some(1_000), []);
        let store = Store::open(root.path(), Options { tenant_quotas, ..Options::default() }).unwrap();
        let put = |byte: u8, bytes: usize| {
            let content = Bytes::from(vec![byte; bytes]);
            let digest = Digest::of(DigestFunction::Sha256, &content);
            store.put_many(&tenant, &[(digest, content)]).remove(0).map(|()| digest)
        };
        let may_evict = || store.inner().index().may_evict_of(&tenant.fingerprint());
        let first = put(1, 500).unwrap();
        let pin = store.pin(&tenant, &[first]);
        assert!(may_evict());
        assert!(put(2, 600).is_err());
        assert!(!may_evict(), "everything that is left is pinned");
        put(3, 10).unwrap();
        assert!(may_evict(), "the new blob can be evicted");
        assert!(put(2, 600).is_err());
        assert!(!may_evict());
        drop(pin);
        assert!(may_evict(), "the first blob is pinned no more");
        put(2, 600).unwrap();
    }
}
