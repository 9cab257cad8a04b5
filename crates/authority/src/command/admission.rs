//! The bounds on what tenants may add: queues, tasks and the memory for them. What tenants share is shared so that one
//! tenant cannot take it all.

use std::sync::Arc;

use super::Refusal;
use crate::event::TaskCreated;
use crate::limits::{
    DEFAULT_TENANT, MAX_QUEUES, MAX_REQUIREMENT_SETS, MAX_TENANTS, RESERVED_MEMORY_PART, RESERVED_QUEUES,
    TENANT_SHARE,
};
use crate::{State, TenantUsage};

/// Whether this task may be created. Its own memory counts, or each of many tenants could go beyond the limit by a task.
pub(super) fn admit_task(state: &State, created: &TaskCreated) -> Result<(), Refusal> {
    let tenant = &created.queue.scope.tenant;
    let queue = state.queue_by_key(&created.queue);
    let usage = queue.map(|queue| state.tenant_of(queue)).or_else(|| state.tenant_usage(tenant));
    let usage = usage.unwrap_or_default();
    admit_within_limits(state, tenant, usage)?;
    let bytes = usage.bytes;
    let reserved = state.max_bytes() / RESERVED_MEMORY_PART;
    let free = (state.max_bytes() - reserved).saturating_sub(state.bytes());
    let new_bytes = created.task_bytes();
    let (bytes_after, free_after) = (bytes + new_bytes, free.saturating_sub(new_bytes));
    if bytes_after > reserved / MAX_TENANTS && bytes_after > free_after.saturating_mul(TENANT_SHARE) {
        return Err(Refusal::StateFull { tenant: tenant.clone(), bytes, free });
    }
    match queue {
        None => admit_queue(state, tenant),
        Some(queue) if queue.remaining_capacity() == Some(0) => {
            Err(Refusal::QueueFull { max: queue.settings.max_queue_size.unwrap_or(u64::MAX) })
        }
        Some(queue)
            if queue.ready.requirement_sets() >= MAX_REQUIREMENT_SETS
                && !queue.ready.has_requirement_set(&created.properties) =>
        {
            Err(Refusal::TooManyRequirements)
        }
        Some(_) => Ok(()),
    }
}

/// Whether the limits of the tenant leave room for one more task.
fn admit_within_limits(state: &State, tenant: &Arc<str>, usage: TenantUsage) -> Result<(), Refusal> {
    let limits = state.tenant_limits(tenant);
    if let Some(max) = limits.open_tasks.filter(|max| usage.open_tasks >= *max) {
        return Err(Refusal::TenantTasks { tenant: tenant.clone(), max });
    }
    if let Some(max) = limits.bytes.filter(|max| usage.bytes >= *max) {
        return Err(Refusal::TenantBytes { tenant: tenant.clone(), max });
    }
    Ok(())
}

/// Whether the tenant may have one more queue.
pub(super) fn admit_queue(state: &State, tenant: &Arc<str>) -> Result<(), Refusal> {
    let usage = state.tenant_usage(tenant);
    // Requests that name no tenant are served however many others there are.
    if usage.is_none() && state.tenant_count() >= MAX_TENANTS && **tenant != *DEFAULT_TENANT {
        return Err(Refusal::TooManyTenants { tenant: tenant.clone() });
    }
    let queues = usage.unwrap_or_default().queues;
    let free = MAX_QUEUES.saturating_sub(state.queue_count());
    if queues >= RESERVED_QUEUES && queues >= free.saturating_mul(TENANT_SHARE) {
        Err(Refusal::TooManyQueues { tenant: tenant.clone(), queues, free })
    } else {
        Ok(())
    }
}
