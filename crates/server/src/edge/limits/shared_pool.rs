//! A pool that tenants share: one tenant may use at most seven times as much as is free, so that others find some. Alone it
//! gets seven eighths, the next one seven eighths of the rest, and so on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use authority::limits::is_share_used;

pub(crate) struct SharedPool(Mutex<State>);

struct State {
    free: usize,
    /// By tenant; a tenant that uses nothing is not there, so there are at most as many as the pool has units.
    used: HashMap<Arc<str>, usize>,
}

impl SharedPool {
    pub(crate) fn new(size: usize) -> Arc<SharedPool> {
        Arc::new(SharedPool(Mutex::new(State { free: size, used: HashMap::new() })))
    }

    /// Takes a part of the pool, or nothing.
    pub(crate) fn take(self: &Arc<Self>, tenant: &Arc<str>, amount: usize) -> Option<PoolPermit> {
        let mut permit = self.nothing(tenant);
        permit.grow(amount).then_some(permit)
    }

    /// A permit for nothing yet, which grows.
    pub(crate) fn nothing(self: &Arc<Self>, tenant: &Arc<str>) -> PoolPermit {
        PoolPermit { pool: self.clone(), tenant: tenant.clone(), amount: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Both figures change together and without a panic between them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of the pool, until this is dropped.
pub(crate) struct PoolPermit {
    pool: Arc<SharedPool>,
    tenant: Arc<str>,
    amount: usize,
}

impl PoolPermit {
    /// Takes more, or nothing.
    pub(crate) fn grow(&mut self, more: usize) -> bool {
        if more == 0 {
            return true;
        }
        let mut state = self.pool.lock();
        let used = state.used.get(&self.tenant).copied().unwrap_or(0);
        if more > state.free || is_share_used(used, state.free) {
            return false;
        }
        state.free -= more;
        match state.used.get_mut(&self.tenant) {
            Some(used) => *used += more,
            None => drop(state.used.insert(self.tenant.clone(), more)),
        }
        self.amount += more;
        true
    }

    /// Gives everything back, and stays to take more.
    pub(crate) fn give_back(&mut self) {
        let amount = std::mem::take(&mut self.amount);
        if amount == 0 {
            return;
        }
        let mut state = self.pool.lock();
        state.free += amount;
        if let Some(used) = state.used.get_mut(&self.tenant) {
            *used -= amount;
            if *used == 0 {
                state.used.remove(&self.tenant);
            }
        }
    }
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a3_a_tenant_that_takes_all_it_can_leaves_some_for_the_next() {
        let pool = SharedPool::new(800);
        let fill = |tenant: &str| {
            let tenant = Arc::from(tenant);
            std::iter::from_fn(|| pool.take(&tenant, 1)).collect::<Vec<_>>()
        };
        let greedy = fill("greedy");
        let second = fill("second");
        assert_eq!((greedy.len(), second.len()), (700, 88));
        assert!(!fill("third").is_empty());
        drop(greedy);
        assert!(fill("fourth").len() > 600);
        drop(second);
        let state = pool.lock();
        assert_eq!((state.free, state.used.len()), (800, 0));
    }

    #[test]
    fn a_permit_grows_and_gives_everything_back() {
        let (pool, tenant) = (SharedPool::new(8), Arc::from("t"));
        let mut permit = pool.take(&tenant, 4).unwrap();
        assert!(permit.grow(3) && !permit.grow(1) && permit.grow(0));
        assert!(pool.take(&Arc::from("other"), 2).is_none(), "one is free");
        permit.give_back();
        assert!(permit.grow(8), "nothing was in use");
    }
}
