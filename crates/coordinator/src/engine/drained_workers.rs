//! The workers that the operator has drained: they are granted nothing until they are resumed, also when they register
//! again. Soft state, like the registry: a restart of the coordinator forgets it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use authority::limits::is_share_used;

/// Most workers that are drained at a time; tenants share them.
pub(crate) const MAX_DRAINED: usize = 10_000;

type Key = (Arc<str>, Arc<str>);

#[derive(Default)]
pub(super) struct DrainedWorkers {
    /// Each with its tenant.
    workers: Mutex<HashSet<Key>>,
    /// Nobody takes the lock while no worker is drained.
    count: AtomicUsize,
}

impl DrainedWorkers {
    pub(super) fn contains(&self, tenant: &Arc<str>, worker: &Arc<str>) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.lock().contains(&(tenant.clone(), worker.clone()))
    }

    /// Whether the worker is drained now; not when too many others are, or too many of its tenant.
    pub(super) fn insert(&self, tenant: &Arc<str>, worker: &Arc<str>) -> bool {
        let (mut workers, key) = (self.lock(), (tenant.clone(), worker.clone()));
        if !workers.contains(&key) {
            let used = workers.iter().filter(|(other, _)| other == tenant).count();
            let free = MAX_DRAINED.saturating_sub(workers.len());
            if free == 0 || is_share_used(used, free) {
                return false;
            }
        }
        workers.insert(key);
        self.count.store(workers.len(), Ordering::Release);
        true
    }

    pub(super) fn remove(&self, tenant: &Arc<str>, worker: &Arc<str>) {
        let mut workers = self.lock();
        workers.remove(&(tenant.clone(), worker.clone()));
        self.count.store(workers.len(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Key>> {
        // Every change is one insertion or removal, so the set is whole also after a panic.
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
