//! Keeps each tenant within the bytes that it may have: beyond them its own least recently used blobs are evicted, and what
//! still does not fit is refused. What other tenants have is not touched.

use std::{
    collections::HashMap,
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::inner::Inner;
use crate::{Error, Result, Tenant};

/// One part in so many of a quota is made free at a time, so that the search for the oldest blobs is rare.
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

    /// Evicts the least recently used blobs of a tenant, so many bytes of them if there are. The caller holds `housekeeping`.
    fn evict_of(&self, tenant: &[u8; 16], bytes: u64) {
        let oldest = self.index().least_used_of(tenant, bytes);
        let mut gone = Vec::new();
        {
            let mut writer = self.writer();
            for key in oldest {
                let taken = self.index_mut().remove_unpinned(&key);
                gone.extend(taken.and_then(|taken| writer.forget(self, &taken)));
            }
        }
        for path in gone {
            let _ = fs::remove_file(path);
        }
    }
}
