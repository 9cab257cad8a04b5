//! Short ways to write commands. Everything lives in tenant `acme`, workspace `main`, queue `q` unless said.

use std::sync::Arc;

use authority::command::*;
use authority::event::ReleaseCause;
use authority::{
    ApiKey, Backoff, Category, Command, Digest, LeaseRef, Properties, QueueConfig, QueueKey, Role, Scope,
    SecretHash, TaskError, TaskId, TaskOptions,
};

pub(crate) fn scope() -> Scope {
    scope_of("acme")
}

pub(crate) fn scope_of(tenant: &str) -> Scope {
    Scope { tenant: Arc::from(tenant), workspace: Arc::from("main") }
}

pub(crate) fn queue(name: &str) -> Arc<QueueKey> {
    Arc::new(QueueKey { scope: scope(), name: Arc::from(name) })
}

/// A stand-in for the digests made outside: equal texts have equal digests.
pub(crate) fn digest(text: &str) -> Digest {
    let mut bytes = [0; 16];
    for (at, byte) in text.bytes().enumerate() {
        bytes[at % 16] = u8::rotate_left(bytes[at % 16], 3) ^ byte;
    }
    bytes[15] ^= text.len() as u8;
    Digest(bytes)
}

pub(crate) fn properties(pairs: &[(&str, &str)]) -> Arc<Properties> {
    Arc::new(Properties::new(pairs.iter().map(|(name, value)| (Arc::from(*name), Arc::from(*value)))))
}

pub(crate) fn submit_task(id: u128) -> SubmitTask {
    SubmitTask {
        id: TaskId(id),
        queue: queue("q"),
        payload: Arc::from(*b"{}"),
        priority: 0,
        delay_ms: 0,
        properties: properties(&[]),
        options: None,
        operation: None,
    }
}

pub(crate) fn submit(id: u128) -> Command {
    Command::SubmitTask(Box::new(submit_task(id)))
}

pub(crate) fn submit_with(id: u128, options: TaskOptions) -> Command {
    Command::SubmitTask(Box::new(SubmitTask { options: Some(Arc::new(options)), ..submit_task(id) }))
}

pub(crate) fn lease_tasks(worker: &str, max_tasks: usize) -> LeaseTasks {
    LeaseTasks {
        scope: scope(),
        worker: Arc::from(worker),
        session: None,
        queues: vec![Arc::from("q")],
        properties: properties(&[]),
        max_tasks,
        request: None,
        contract: authority::Contract::Leases,
    }
}

pub(crate) fn lease(worker: &str, max_tasks: usize) -> Command {
    Command::LeaseTasks(lease_tasks(worker, max_tasks))
}

pub(crate) fn reference(worker: &str, grant: &Grant) -> LeaseRef {
    LeaseRef {
        scope: grant.queue.scope.clone(),
        worker: Arc::from(worker),
        task: grant.task,
        attempt: grant.attempt,
        fencing_token: grant.fencing_token,
    }
}

pub(crate) fn complete(lease: &LeaseRef, result: &str) -> Command {
    Command::ReportCompletion(ReportCompletion {
        lease: lease.clone(),
        digest: digest(&format!("ok {result}")),
        result: Arc::from(result.as_bytes()),
        details: None,
    })
}

/// A failure that is worth another try by its category.
pub(crate) fn fail(lease: &LeaseRef, message: &str) -> Command {
    fail_as(lease, Category::UserCode, message, None)
}

pub(crate) fn fail_as(
    lease: &LeaseRef,
    category: Category,
    message: &str,
    retryable: Option<bool>,
) -> Command {
    Command::ReportFailure(ReportFailure {
        lease: lease.clone(),
        digest: digest(&format!("{} {message}", category.name())),
        error: TaskError { category, code: None, message: Arc::from(message) },
        retryable,
        draw: 0,
        details: None,
    })
}

pub(crate) fn heartbeat(lease: &LeaseRef) -> Command {
    Command::ExtendLease(ExtendLease { lease: lease.clone() })
}

pub(crate) fn start(lease: &LeaseRef, by: &str) -> Command {
    Command::StartAttempt(StartAttempt { lease: lease.clone(), started_by: Arc::from(by) })
}

pub(crate) fn release(lease: &LeaseRef) -> Command {
    Command::ReleaseLease(ReleaseLease { lease: lease.clone(), cause: ReleaseCause::Worker })
}

pub(crate) fn cancel(task: TaskId) -> Command {
    Command::CancelTask(CancelTask { scope: scope(), task, reason: Arc::from("user_requested"), by: None })
}

pub(crate) fn kill(task: TaskId) -> Command {
    Command::KillTask(KillTask { scope: scope(), task, detail: None, by: None })
}

pub(crate) fn redrive(task: TaskId, id: u128) -> Command {
    Command::RedriveTask(RedriveTask { scope: scope(), task, id: TaskId(id), by: None })
}

pub(crate) fn end_worker(worker: &str) -> Command {
    Command::EndWorker(EndWorker { tenant: scope().tenant, worker: Arc::from(worker) })
}

pub(crate) fn session(worker: &str, session: &str) -> Command {
    Command::StartSession(StartSession {
        tenant: scope().tenant,
        worker: Arc::from(worker),
        session: Arc::from(session),
    })
}

pub(crate) fn configure(name: &str, config: QueueConfig) -> Command {
    Command::ConfigureQueue(ConfigureQueue { queue: queue(name), config, by: None })
}

pub(crate) fn api_key(id: &str, name: &str) -> ApiKey {
    ApiKey {
        id: Arc::from(id),
        name: Arc::from(name),
        tenants: vec![Arc::from("acme")],
        roles: vec![Role::Worker],
        queues: Vec::new(),
        worker_prefix: None,
        expires_at: None,
        secret_hash: SecretHash([7; 32]),
        created_by: Arc::from("root"),
        properties: Vec::new(),
    }
}

pub(crate) fn create_key(id: &str, name: &str) -> Command {
    Command::CreateKey(CreateKey { key: Arc::new(api_key(id, name)), by: None })
}

pub(crate) fn revoke_key(id: &str) -> Command {
    Command::RevokeKey(RevokeKey { key_id: Arc::from(id), revoked_by: Arc::from("root"), by: None })
}

pub(crate) fn tick() -> Command {
    Command::Tick(Tick)
}

pub(crate) fn purge() -> Command {
    Command::Purge(Purge { by_age: true })
}

/// The queue of most tests: leases of a second (and its tenth), waits of a second without jitter.
pub(crate) fn quick_queue() -> QueueConfig {
    QueueConfig {
        lease_ms: Some(1_000),
        cancel_grace_ms: Some(5_000),
        backoff: Some(Backoff { jitter_permille: 0, ..Backoff::default() }),
        ..QueueConfig::default()
    }
}
