//! Values with every field set.

use std::sync::Arc;

use authority::command::*;
use authority::*;
use coordinator::{Activity, Registered, Registration, WorkerStatus};

pub(super) fn text(text: &str) -> Arc<str> {
    text.into()
}

pub(super) fn bytes(length: usize) -> Arc<[u8]> {
    vec![0xab; length].into()
}

pub(super) fn scope() -> Scope {
    Scope { tenant: text("tenant"), workspace: text("workspace") }
}

pub(super) fn queue() -> Arc<QueueKey> {
    Arc::new(QueueKey { scope: scope(), name: text("queue") })
}

pub(super) fn properties() -> Arc<Properties> {
    Arc::new(Properties::new([(text("os"), text("linux")), (text("arch"), text("arm64"))]))
}

pub(super) fn lease() -> LeaseRef {
    let (task, fencing_token) = (TaskId(u128::MAX - 5), Position(77));
    LeaseRef { scope: scope(), worker: text("w"), task, attempt: 3, fencing_token }
}

pub(super) fn by() -> Option<Arc<Actor>> {
    Some(Arc::new(Actor::new(ActorKind::Certificate, "id", "name")))
}

pub(super) fn backoff() -> Backoff {
    Backoff::default()
}

pub(super) fn options() -> TaskOptions {
    TaskOptions {
        dedup: Some(Dedup { key: text("key"), content: Digest([9; 16]) }),
        deadline: Some(Time(5)),
        timeout_ms: Some(6),
        lease_ms: Some(7),
        max_attempts: Some(8),
        backoff: Some(backoff()),
        run_id: Some(text("run")),
        asset_id: Some(text("asset")),
        task_key: Some(text("task")),
        resources: Some(bytes(3)),
        redrive_of: Some(TaskId(4)),
    }
}

pub(super) fn details() -> Option<Arc<ReportDetails>> {
    Some(Arc::new(ReportDetails {
        metrics: Some(bytes(1)),
        stack_trace: Some(text("trace")),
        cancelled_during_phase: Some(text("phase")),
        partial_progress: Some(bytes(2)),
    }))
}

pub(super) fn error() -> TaskError {
    TaskError { category: Category::Timeout, code: Some(text("E1")), message: text("slow") }
}

pub(super) fn config() -> QueueConfig {
    QueueConfig {
        max_attempts: Some(1),
        lease_ms: Some(2),
        heartbeat_interval_ms: Some(3),
        cancel_grace_ms: Some(4),
        backoff: Some(backoff()),
        retry_on: Some(Vec::new()),
        max_queue_size: Some(5),
        retention_ms: Some(6),
        push: Some(Arc::new(PushTarget {
            url: text("https://target"),
            concurrency: 3,
            headers: vec![(text("x"), text("y"))],
            secret: Some(text("secret")),
        })),
    }
}

pub(super) fn key() -> Arc<ApiKey> {
    Arc::new(ApiKey {
        id: text("k"),
        name: text("ci"),
        tenants: vec![text("tenant")],
        roles: vec![Role::Worker, Role::Operator],
        queues: vec![text("q")],
        worker_prefix: Some(text("w-")),
        expires_at: Some(Time(9)),
        secret_hash: SecretHash([3; 32]),
        created_by: text("admin"),
        properties: vec![text("os=linux")],
    })
}

pub(super) fn task(phase: Phase) -> TaskView {
    let task = Task {
        id: TaskId(1),
        payload: bytes(100),
        priority: -4,
        attempt: 2,
        releases: 1,
        created_at: Time(1),
        created: Position(2),
        last: Position(3),
        phase,
        cancel: Some(Box::new(CancelRequest {
            cause: CancelCause::User,
            reason: text("why"),
            requested_at: Time(4),
            grace_until: Time(5),
        })),
        reports: outcomes()
            .map(|outcome| Report {
                attempt: 1,
                fencing_token: Position(1),
                digest: Digest([1; 16]),
                outcome,
            })
            .collect(),
        last_error: Some(Box::new(error())),
        details: details(),
        properties: properties(),
        options: Some(Arc::new(options())),
        operations: vec![text("o")],
    };
    TaskView { queue: queue(), task, settings: TaskSettings { max_attempts: 1, ..TaskSettings::default() } }
}

pub(super) fn outcomes() -> impl Iterator<Item = Outcome> {
    [
        Outcome::Completed,
        Outcome::Failed,
        Outcome::RetryAt(Time(3)),
        Outcome::Dead(DeadReason::Killed),
        Outcome::Discarded,
    ]
    .into_iter()
}

pub(super) fn tasks() -> Vec<TaskView> {
    let lease = Lease {
        fencing_token: Position(4),
        worker: text("w"),
        session: Some(text("s")),
        request: Some(Digest([2; 16])),
        granted_at: Time(1),
        length_ms: 2,
        expires_at: Time(3),
        extended_at: Time(4),
        started_by: Some(text("v")),
        contract: Some(Contract::Claims),
        since: Some(Position(5)),
    };
    let (at, ended) = (Time(8), Position(9));
    let phases = [
        Phase::Waiting { since: Position(1), not_before: Some(Time(2)), exhausted: true },
        Phase::Leased(Box::new(lease)),
        Phase::Completed { at, ended, result: bytes(5) },
        Phase::Failed { at, ended },
        Phase::Dead { at, ended, reason: DeadReason::Deadline, detail: Some(text("late")) },
    ];
    phases.map(task).into()
}

pub(super) fn grant() -> Grant {
    Grant {
        fencing_token: Position(7),
        worker: text("w"),
        task: TaskId(8),
        attempt: 2,
        queue: queue(),
        payload: bytes(1_000),
        created_at: Time(1),
        since: Some(Position(6)),
        granted_at: Time(2),
        length_ms: 3,
        expires_at: Time(4),
        heartbeat_interval_ms: 5,
        cancel_grace_ms: 6,
        options: Some(Arc::new(options())),
        partial_progress: Some(bytes(4)),
    }
}

pub(super) fn poll() -> LeaseTasks {
    LeaseTasks {
        scope: scope(),
        worker: text("w"),
        session: Some(text("s")),
        queues: vec![text("a"), text("b")],
        properties: properties(),
        max_tasks: 9,
        request: Some(Digest([4; 16])),
        contract: Contract::Stream,
    }
}

pub(super) fn registration() -> Registration {
    Registration {
        session: Some(text("s")),
        properties: properties(),
        max_concurrent_executions: 4,
        cpu_cores: 1.5,
        memory_bytes: 6,
        disk_bytes: 7,
        registered_at: Time(8),
        address: Some([127, 0, 0, 1].into()),
        owner: Some(text("key:k")),
    }
}

pub(super) fn registered() -> Registered {
    let status =
        WorkerStatus { activity: Activity::Busy, active_tasks: 1, total_completed: 2, total_failed: 3 };
    Registered { registration: Arc::new(registration()), status, is_stopping: true }
}
