//! Permits that callers wait for, shared by tenants: at most seven eighths of them are held by one tenant, whose further
//! callers wait for a permit of their own tenant and not before those of others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use authority::limits::TENANT_SHARE;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) struct TenantGates {
    all: Arc<Semaphore>,
    max_of_tenant: usize,
    /// Of tenants that have callers.
    tenants: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

/// A permit of its tenant and of all.
pub(crate) struct GatePermit {
    _all: OwnedSemaphorePermit,
    _own: OwnPermit,
}

impl TenantGates {
    pub(crate) fn new(size: usize) -> Arc<TenantGates> {
        let max_of_tenant = (size * TENANT_SHARE / (TENANT_SHARE + 1)).max(1);
        Arc::new(TenantGates {
            all: Arc::new(Semaphore::new(size)),
            max_of_tenant,
            tenants: Mutex::default(),
        })
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(self: &Arc<Self>, tenant: &str) -> Option<GatePermit> {
        let mut own = self.enter(tenant);
        own.permit = own.semaphore.clone().acquire_owned().await.ok();
        let _all = self.all.clone().acquire_owned().await.ok()?;
        Some(GatePermit { _all, _own: own })
    }

    /// A place of the tenant, with a permit later.
    fn enter(self: &Arc<Self>, tenant: &str) -> OwnPermit {
        let mut tenants = self.lock();
        let (tenant, semaphore) = match tenants.get_key_value(tenant) {
            Some((tenant, semaphore)) => (tenant.clone(), semaphore.clone()),
            None => {
                let entry = (Arc::<str>::from(tenant), Arc::new(Semaphore::new(self.max_of_tenant)));
                tenants.insert(entry.0.clone(), entry.1.clone());
                entry
            }
        };
        OwnPermit { gates: self.clone(), tenant, semaphore, permit: None }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Semaphore>>> {
        // Every change is one insertion or removal, so the map is whole also after a panic.
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a caller at the gate of its tenant, while it waits and while it holds a permit.
struct OwnPermit {
    gates: Arc<TenantGates>,
    tenant: Arc<str>,
    semaphore: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for OwnPermit {
    fn drop(&mut self) {
        // The permit holds the semaphore as well.
        self.permit = None;
        let mut tenants = self.gates.lock();
        // The table and this one hold it: nobody else does, or can while the table is locked.
        if Arc::strong_count(&self.semaphore) <= 2 {
            tenants.remove(&self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a3_a_tenant_whose_callers_wait_does_not_keep_others_waiting() {
        let gates = TenantGates::new(8);
        let mut held = Vec::new();
        for _ in 0..7 {
            held.push(gates.acquire("greedy").await.unwrap());
        }
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(gates.acquire("greedy"))).collect();
        assert!(waiting.iter_mut().all(|one| one.as_mut().now_or_never().is_none()));
        let other = gates.acquire("other").now_or_never().flatten();
        assert!(other.is_some());
        held.pop();
        assert!(waiting[0].as_mut().now_or_never().flatten().is_some());
        drop((held, waiting, other));
        assert!(gates.lock().is_empty(), "tenants without callers are forgotten");
    }
}
