//! Tasks, queues and keys, and what they consist of.

use authority::command::Grant;
use authority::{
    Actor, ApiKey, Backoff, CancelRequest, Dedup, HeldLease, Lease, LeaseRef, ListPage, Outcome, Phase,
    PushTarget, QueueConfig, QueueKey, QueueSettings, QueueView, Report, ReportDetails, Scope, StoredKey,
    Task, TaskError, TaskOptions, TaskSettings, TaskState, TaskView, TenantUsage, TokenKey,
};

use super::{enums, structs};

structs! {
    Scope { 1 tenant, 2 workspace }
    QueueKey { 1 scope, 2 name }
    LeaseRef { 1 scope, 2 worker, 3 task, 4 attempt, 5 fencing_token }
    HeldLease { 1 lease, 2 queue, 3 session, 4 contract }
    Actor { 1 kind, 2 id, 3 name }
    Backoff { 1 initial_ms, 2 factor_permille, 3 max_ms, 4 jitter_permille }
    Dedup { 1 key, 2 content }
    TaskError { 1 category, 2 code, 3 message }
    ReportDetails { 1 metrics, 2 stack_trace, 3 cancelled_during_phase, 4 partial_progress }
    PushTarget { 1 url, 2 concurrency, 3 headers, 4 secret }
    TaskOptions {
        1 dedup, 2 deadline, 3 timeout_ms, 4 lease_ms, 5 max_attempts, 6 backoff, 7 run_id, 8 asset_id, 9 task_key,
        10 resources, 11 redrive_of,
    }
    QueueConfig {
        1 max_attempts, 2 lease_ms, 3 heartbeat_interval_ms, 4 cancel_grace_ms, 5 backoff, 6 retry_on,
        7 max_queue_size, 8 retention_ms, 9 push,
    }
    QueueSettings {
        1 max_attempts, 2 lease_ms, 3 heartbeat_interval_ms, 4 cancel_grace_ms, 5 backoff, 6 retry_on,
        7 max_queue_size, 8 retention_ms,
    }
    QueueView {
        1 key, 2 config, 3 settings, 4 waiting, 5 delayed, 6 leased, 7 completed, 8 failed, 9 dead, 10 oldest_waiting,
    }
    ApiKey {
        1 id, 2 name, 3 tenants, 4 roles, 5 queues, 6 worker_prefix, 7 expires_at, 8 secret_hash, 9 created_by,
        10 properties,
    }
    StoredKey { 1 key, 2 created_at, 3 since }
    TokenKey { 1 id, 2 since }
    Grant {
        1 fencing_token, 2 worker, 3 task, 4 attempt, 5 queue, 6 payload, 7 created_at, 8 since, 9 granted_at,
        10 length_ms, 11 expires_at, 12 heartbeat_interval_ms, 13 cancel_grace_ms, 14 options, 15 partial_progress,
    }
    Task {
        1 id, 2 payload, 3 priority, 4 attempt, 5 releases, 6 created_at, 7 created, 8 last, 9 phase, 10 cancel,
        11 reports, 12 last_error, 13 details, 14 properties, 15 options, 16 operations,
    }
    Lease {
        1 fencing_token, 2 worker, 3 session, 4 request, 5 granted_at, 6 length_ms, 7 expires_at, 8 extended_at,
        9 started_by, 10 contract, 11 since,
    }
    CancelRequest { 1 cause, 2 reason, 3 requested_at, 4 grace_until }
    Report { 1 attempt, 2 fencing_token, 3 digest, 4 outcome }
    TaskSettings { 1 max_attempts, 2 heartbeat_interval_ms, 3 cancel_grace_ms }
    TaskView { 1 queue, 2 task, 3 settings }
    ListPage { 1 tasks, 2 next }
    TenantUsage { 1 queues, 2 bytes, 3 open_tasks }
}

enums! {
    TaskState {
        1 Waiting {};
        2 Leased {};
        3 Completed {};
        4 Failed {};
        5 Dead {};
    }
    Phase {
        1 Waiting { 1 since: since, 2 not_before: not_before, 3 exhausted: exhausted };
        2 Leased { 1 0: lease };
        3 Completed { 1 at: at, 2 ended: ended, 3 result: result };
        4 Failed { 1 at: at, 2 ended: ended };
        5 Dead { 1 at: at, 2 ended: ended, 3 reason: reason, 4 detail: detail };
    }
    Outcome {
        1 Completed {};
        2 Failed {};
        3 RetryAt { 1 0: at };
        4 Dead { 1 0: reason };
        5 Discarded {};
    }
}
