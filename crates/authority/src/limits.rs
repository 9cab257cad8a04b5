//! Every bound of the authority, named, with the unit last.

/// Largest payload or result that is kept inline.
pub const MAX_INLINE_BYTES: usize = 1024 * 1024;
/// Longest name of a tenant, workspace, queue, worker, session, operation, dedup key, run, asset or task key.
pub const MAX_NAME_BYTES: usize = 512;
/// Longest reason or error message.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024;
/// Longest stack trace; the beginning is kept.
pub const MAX_STACK_TRACE_BYTES: usize = 32 * 1024;
/// Longest metrics of a report.
pub const MAX_METRICS_BYTES: usize = 16 * 1024;
/// Longest partial progress of a report.
pub const MAX_PARTIAL_PROGRESS_BYTES: usize = 64 * 1024;
/// Longest free JSON beside the payload: `resources`.
pub const MAX_RESOURCES_BYTES: usize = 16 * 1024;
/// Longest id and longest name of an actor in a record; the beginning is kept.
pub const MAX_ACTOR_TEXT_BYTES: usize = 256;
/// Most properties of one task or worker.
pub const MAX_PROPERTIES: usize = 64;

/// The tenant of requests that name none.
pub const DEFAULT_TENANT: &str = "default";
/// Most tenants that have a queue at one time; only the default tenant may come on top. A tenant that has one is never
/// refused for this.
pub const MAX_TENANTS: usize = 1_000;
/// One tenant may use at most this many times what is still free of the queues and of the memory for tasks, so that others
/// find room: alone, seven eighths of it.
pub const TENANT_SHARE: usize = 7;

/// Whether a tenant uses as much as it may of something of which so much is free.
pub fn is_share_used(used: usize, free: usize) -> bool {
    used >= free.saturating_mul(TENANT_SHARE)
}

/// Most queues at one time that tenants share.
pub const MAX_QUEUES: usize = 10_000;
/// Queues that each tenant may have in any case, beside those that tenants share.
pub const RESERVED_QUEUES: usize = 2;
/// The part of the memory for tasks, as a divisor, that is reserved in equal shares for all tenants that there may be.
pub const RESERVED_MEMORY_PART: usize = 16;
/// Most requirement sets with waiting tasks in one queue, checked at submit.
pub const MAX_REQUIREMENT_SETS: usize = 1_024;
/// Most worker profiles with an index in one queue; a task for any other profile is found by a scan of the requirement sets.
pub const MAX_WORKER_PROFILES: usize = 1_024;

/// Longest address of a push target.
pub const MAX_PUSH_URL_BYTES: usize = 2_048;
/// Most tasks that a push target may have at one time.
pub const MAX_PUSH_CONCURRENCY: u32 = 1_000;
/// Most headers that are sent to a push target, and the most bytes that they have together.
pub const MAX_PUSH_HEADERS: usize = 32;
pub const MAX_PUSH_HEADER_BYTES: usize = 8 * 1024;
/// Shortest and longest secret of a push target.
pub const MIN_PUSH_SECRET_BYTES: usize = 16;
pub const MAX_PUSH_SECRET_BYTES: usize = 256;
/// The same of headers and secrets that are encrypted.
pub const MAX_SEALED_HEADER_BYTES: usize = 2 * MAX_PUSH_HEADER_BYTES;
pub const MAX_SEALED_SECRET_BYTES: usize = 2 * MAX_PUSH_SECRET_BYTES;

/// Longest heartbeat interval of a queue with a push target. Its workers prove themselves with tokens that live for an
/// hour and are renewed by heartbeats in their second half.
pub const MAX_PUSH_INTERVAL_MS: u64 = 30 * 60 * 1_000;

/// Most API keys that live at one time.
pub const MAX_KEYS: usize = 10_000;
/// Most tenants, and most queues, that one key names.
pub const MAX_KEY_TENANTS: usize = 16;
pub const MAX_KEY_QUEUES: usize = 16;
/// Most properties of workers that one key names.
pub const MAX_KEY_PROPERTIES: usize = 64;

/// Most leases granted by one command.
pub const MAX_GRANTS: usize = 100;
/// No further lease is granted by a command whose payloads together reach this; one that is larger goes alone.
pub const MAX_GRANT_BYTES: usize = 8 * 1024 * 1024;
/// Most queues that one poll may name.
pub const MAX_POLL_QUEUES: usize = 100;
/// Most attempts that a policy may allow.
pub const MAX_ATTEMPTS: u32 = 1_000;
/// Most reports remembered for one task. Beyond it a report without authority is answered but not recorded,
/// so a worker that repeats itself for ever cannot grow the ledger.
pub const MAX_REPORTS: usize = 1_128;
/// Most waiters of one merged execution.
pub const MAX_OPERATIONS: usize = 1_000;

/// Shortest and longest lease.
pub const MIN_LEASE_MS: u64 = 100;
pub const MAX_LEASE_MS: u64 = 24 * 60 * 60 * 1_000;
/// Longest of all other spans: delay, timeout, grace, backoff, retention.
pub const MAX_SPAN_MS: u64 = 366 * 24 * 60 * 60 * 1_000;

/// Most due tasks handled by one tick, and most tasks purged by one event.
pub const MAX_TICK_TASKS: usize = 1_000;
/// How long a final task is kept where its queue says nothing else.
pub const DEFAULT_RETENTION_MS: u64 = 7 * 24 * 60 * 60 * 1_000;
/// Under memory pressure no task that has been final for less than this is purged early.
pub const MIN_RETENTION_MS: u64 = 10 * 60 * 1_000;
/// While final tasks exceed their own limit, no task that has been final for less than this is purged early: a worker that
/// lost the answer to its report repeats the report in this time.
pub const MIN_FINAL_MS: u64 = 60 * 1_000;
/// Most tasks on one page of a list.
pub const MAX_PAGE: usize = 1_000;
/// Most tasks scanned for one page; a filter that matches little gives short pages, not long scans.
pub const MAX_PAGE_SCAN: usize = 10_000;
