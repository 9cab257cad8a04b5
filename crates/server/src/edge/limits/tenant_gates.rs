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
    tenants: Mutex<HashMap<Arc<str>, Gate>>,
}

struct Gate {
    semaphore: Arc<Semaphore>,
    /// Those that wait and those that hold a permit.
    callers: usize,
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
        let new_gate = || Gate { semaphore: Arc::new(Semaphore::new(self.max_of_tenant)), callers: 0 };
        let tenant = tenants.get_key_value(tenant).map_or_else(|| tenant.into(), |(known, _)| known.clone());
        let gate = tenants.entry(Arc::clone(&tenant)).or_insert_with(new_gate);
        gate.callers += 1;
        OwnPermit { gates: self.clone(), tenant, semaphore: gate.semaphore.clone(), permit: None }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Gate>> {
        // Every change is one insertion, count or removal, so the map is whole also after a panic.
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
        let mut tenants = self.gates.lock();
        if let Some(gate) = tenants.get_mut(&self.tenant) {
            gate.callers -= 1;
            if gate.callers == 0 {
                tenants.remove(&self.tenant);
            }
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

    /// Regression: of two callers that left at the same moment, each took the other one for present, and the tenant
    /// stayed in the table.
    #[test]
    fn tenants_whose_last_callers_leave_at_once_are_forgotten() {
        let gates = TenantGates::new(8);
        for n in 0..2_000 {
            let tenant = n.to_string();
            let start = std::sync::Barrier::new(2);
            let leave = |permit: GatePermit| {
                start.wait();
                drop(permit);
            };
            let permits = [(); 2].map(|()| gates.acquire(&tenant).now_or_never().flatten().unwrap());
            std::thread::scope(|scope| permits.map(|permit| scope.spawn(|| leave(permit))).map(|_| ()));
        }
        assert_eq!(gates.lock().len(), 0);
    }
}
