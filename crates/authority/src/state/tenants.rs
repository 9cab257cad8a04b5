//! The queues, the open tasks and the memory of each tenant that has a queue, and the limits of tenants.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::change::Size;

/// What a tenant uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantUsage {
    pub queues: usize,
    pub bytes: usize,
    /// Tasks that wait or are leased.
    pub open_tasks: usize,
}

/// What a tenant may use at most; no limit where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    pub open_tasks: Option<usize>,
    pub bytes: Option<usize>,
}

/// The limits of all tenants. They decide about submits only, so the same records give the same state under any limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsByTenant {
    /// Of tenants that have no limits of their own.
    pub others: TenantLimits,
    pub tenants: BTreeMap<Arc<str>, TenantLimits>,
}

impl LimitsByTenant {
    pub fn of(&self, tenant: &str) -> TenantLimits {
        if self.tenants.is_empty() {
            return self.others;
        }
        self.tenants.get(tenant).copied().unwrap_or(self.others)
    }
}

/// Tenants by name, and by a number under which a task's queue finds its tenant.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    numbers: BTreeMap<Arc<str>, u32>,
    usage: Vec<TenantUsage>,
    /// Numbers of tenants that are gone.
    free: Vec<u32>,
}

impl Tenants {
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// What a tenant uses; none when it has no queue.
    pub(crate) fn usage(&self, tenant: &str) -> Option<TenantUsage> {
        self.numbers.get(tenant).map(|number| self.at(*number))
    }

    pub(crate) fn at(&self, number: u32) -> TenantUsage {
        self.usage[number as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, TenantUsage)> {
        self.numbers.iter().map(|(tenant, number)| (tenant, self.at(*number)))
    }

    /// Counts a new queue, and gives the number of its tenant.
    pub(super) fn add_queue(&mut self, tenant: &Arc<str>) -> u32 {
        let number = self.numbers.get(tenant).copied().unwrap_or_else(|| {
            let number = self.free.pop().unwrap_or(self.usage.len() as u32);
            if number as usize == self.usage.len() {
                self.usage.push(TenantUsage::default());
            }
            self.numbers.insert(tenant.clone(), number);
            number
        });
        self.usage[number as usize].queues += 1;
        number
    }

    /// Counts a queue no more. It has no tasks; a tenant goes with its last queue.
    pub(super) fn remove_queue(&mut self, tenant: &Arc<str>) {
        let Some(&number) = self.numbers.get(tenant) else { return };
        self.usage[number as usize].queues -= 1;
        if self.usage[number as usize].queues == 0 {
            self.numbers.remove(tenant);
            self.free.push(number);
        }
    }

    /// Counts a task of the tenant that was `before` and is `after`.
    pub(super) fn resize(&mut self, number: u32, before: Size, after: Size) {
        let usage = &mut self.usage[number as usize];
        usage.bytes = usage.bytes - before.bytes + after.bytes;
        usage.open_tasks = usage.open_tasks - before.open_tasks + after.open_tasks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_tenant_that_is_gone_is_used_again() {
        let (mut tenants, [a, b]) = (Tenants::default(), ["a", "b"].map(Arc::<str>::from));
        assert_eq!((tenants.add_queue(&a), tenants.add_queue(&a), tenants.add_queue(&b)), (0, 0, 1));
        tenants.resize(1, Size::default(), Size { bytes: 50, final_bytes: 0, open_tasks: 1 });
        assert_eq!(tenants.usage("b"), Some(TenantUsage { queues: 1, bytes: 50, open_tasks: 1 }));
        tenants.remove_queue(&a);
        assert_eq!((tenants.len(), tenants.at(0).queues), (2, 1));
        tenants.remove_queue(&a);
        assert_eq!((tenants.len(), tenants.usage("a")), (1, None));
        assert_eq!(tenants.add_queue(&Arc::from("c")), 0);
        assert_eq!(tenants.usage("c"), Some(TenantUsage { queues: 1, ..TenantUsage::default() }));
    }
}
