//! One record of each kind and one snapshot entry of each kind and state, with every field set. The fixtures hold
//! exactly these; they change only together with a new format, which gets fixtures of its own.

use std::sync::Arc;

use authority::event::*;
use authority::*;
use ledger::record::Record;
use ledger::record::snapshot::{FORMAT, SnapshotEntry};

const TASK: TaskId = TaskId(0x0190_1111_2222_7333_8444_5555_6666_7777);
const OTHER: TaskId = TaskId(0x0190_1111_2222_7333_8444_5555_6666_8888);
const DIGEST: Digest = Digest([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
const LEASE: Position = Position(70_000);

pub(crate) fn records() -> Vec<Record> {
    let at = |number: u64| Time(1_790_000_000_000 + number);
    let numbered = |(number, event): (usize, Event)| Record {
        at: at(number as u64),
        prev: event.task().map(|_| Position(1_000 + number as u64)),
        event,
    };
    events().into_iter().enumerate().map(numbered).collect()
}

pub(crate) fn entries() -> Vec<SnapshotEntry> {
    let mut entries = vec![
        SnapshotEntry::Header { begin: Position(123_456), time: Time(1_790_000_000_000), format: FORMAT },
        SnapshotEntry::Queue { key: queue(), config: config(), configured: Position(17) },
        SnapshotEntry::Owner(Owner { epoch: 4, node: "node-a".into(), since: Position(2) }),
        SnapshotEntry::TokenKey(TokenKey { id: "key-7".into(), since: Position(3) }),
        SnapshotEntry::Key(StoredKey {
            key: api_key(),
            created_at: Time(1_790_000_000_700),
            since: Position(71_000),
        }),
    ];
    entries.extend(
        phases().into_iter().map(|phase| SnapshotEntry::Task { queue: queue(), task: Box::new(task(phase)) }),
    );
    entries
}

/// What version 3 wrote of them: it knew no API keys.
pub(crate) fn records_v3() -> Vec<Record> {
    let mut records = records();
    records.retain(|record| !matches!(record.event, Event::KeyCreated(_) | Event::KeyRevoked(_)));
    records
}

pub(crate) fn entries_v3() -> Vec<SnapshotEntry> {
    let mut entries = entries();
    entries.retain(|entry| !matches!(entry, SnapshotEntry::Key(_)));
    if let SnapshotEntry::Header { format, .. } = &mut entries[0] {
        *format = 3;
    }
    entries
}

/// What version 2 wrote of them: it knew neither the contract of a lease, nor lost workers, nor details of reports.
pub(crate) fn records_v2() -> Vec<Record> {
    let mut records = records_v3();
    for record in &mut records {
        match &mut record.event {
            Event::LeaseGranted(granted) => granted.contract = None,
            Event::LeaseExpired(expired) => (expired.cause, expired.since) = (ExpiryCause::Timeout, None),
            Event::TaskCompleted(completed) => completed.details = None,
            Event::TaskFailed(failed) => failed.details = None,
            Event::TaskDead(TaskDead { report: Some(report), .. }) => report.details = None,
            _ => {}
        }
    }
    records
}

pub(crate) fn entries_v2() -> Vec<SnapshotEntry> {
    let mut entries = entries_v3();
    for entry in &mut entries {
        match entry {
            SnapshotEntry::Header { format, .. } => *format = 2,
            SnapshotEntry::Task { task, .. } => {
                task.details = None;
                if let Phase::Leased(lease) = &mut task.phase {
                    (lease.contract, lease.since) = (None, None);
                }
            }
            _ => {}
        }
    }
    entries
}

/// What version 1 wrote of them: it knew no push targets either.
pub(crate) fn records_v1() -> Vec<Record> {
    let mut records = records_v2();
    for record in &mut records {
        if let Event::QueueConfigured(configured) = &mut record.event {
            configured.config.push = None;
        }
    }
    records
}

pub(crate) fn entries_v1() -> Vec<SnapshotEntry> {
    let mut entries = entries_v2();
    for entry in &mut entries {
        match entry {
            SnapshotEntry::Header { format, .. } => *format = 1,
            SnapshotEntry::Queue { config, .. } => config.push = None,
            _ => {}
        }
    }
    entries
}

fn events() -> Vec<Event> {
    vec![
        Event::TaskCreated(Box::new(TaskCreated {
            task: TASK,
            queue: queue(),
            payload: Arc::from(&br#"{"to":"someone"}"#[..]),
            priority: -3,
            not_before: Some(Time(1_790_000_005_000)),
            properties: properties(),
            options: Some(Arc::new(options())),
            operation: Some("operation-1".into()),
            by: None,
        })),
        Event::LeaseGranted(LeaseGranted {
            task: TASK,
            attempt: 2,
            worker: "worker-1".into(),
            session: Some("session-1".into()),
            request: Some(DIGEST),
            length_ms: 60_000,
            expires_at: Time(1_790_000_066_000),
            contract: Some(authority::Contract::Stream),
        }),
        Event::LeaseExtended(LeaseExtended {
            task: TASK,
            fencing_token: LEASE,
            expires_at: Time(1_790_000_099_000),
        }),
        Event::LeaseExpired(LeaseExpired {
            task: TASK,
            fencing_token: LEASE,
            cause: ExpiryCause::WorkerLost,
            exhausted: true,
            since: Some(Position(9)),
        }),
        Event::LeaseReleased(LeaseReleased {
            task: TASK,
            fencing_token: LEASE,
            cause: ReleaseCause::Session,
        }),
        Event::AttemptStarted(AttemptStarted { task: TASK, fencing_token: LEASE, worker: "worker-2".into() }),
        Event::TaskCompleted(TaskCompleted {
            task: TASK,
            fencing_token: LEASE,
            digest: DIGEST,
            result: Arc::from(&br#"{"ok":true}"#[..]),
            details: details(),
        }),
        Event::TaskFailed(TaskFailed {
            task: TASK,
            fencing_token: LEASE,
            digest: DIGEST,
            error: error(),
            next: NextStep::RetryAt(Time(1_790_000_007_000)),
            details: details(),
        }),
        Event::TaskDead(TaskDead {
            task: TASK,
            reason: DeadReason::Deadline,
            detail: Some("too late".into()),
            report: Some(DeadReport {
                fencing_token: LEASE,
                digest: DIGEST,
                error: error(),
                details: details(),
            }),
            by: None,
        }),
        Event::TaskCancelled(TaskCancelled { task: TASK, fencing_token: LEASE, attempt: 2, digest: DIGEST }),
        Event::CancelRequested(CancelRequested {
            task: TASK,
            cause: CancelCause::User,
            reason: "user_requested".into(),
            grace_until: Time(1_790_000_030_000),
            by: None,
        }),
        Event::OperationAttached(OperationAttached { task: TASK, operation: "operation-2".into() }),
        Event::OperationDetached(OperationDetached { task: TASK, operation: "operation-2".into(), by: None }),
        Event::QueueConfigured(QueueConfigured { queue: queue(), config: config(), by: None }),
        Event::TasksPurged(TasksPurged { tasks: vec![TASK, OTHER] }),
        Event::TokenKeyRotated(TokenKeyRotated { key_id: "key-7".into(), by: None }),
        Event::OwnerTookOver(OwnerTookOver { epoch: 4, node: "node-a".into(), audit_head: None }),
        Event::KeyCreated(KeyCreated { key: api_key(), by: None }),
        Event::KeyRevoked(KeyRevoked { key_id: "k7".into(), revoked_by: "root".into(), by: None }),
    ]
}

fn api_key() -> Arc<ApiKey> {
    Arc::new(ApiKey {
        id: "k7".into(),
        name: "ci".into(),
        tenants: vec!["acme".into(), "other".into()],
        roles: Role::ALL.to_vec(),
        queues: vec!["mail".into(), "exec".into()],
        worker_prefix: Some("ci-".into()),
        expires_at: Some(Time(1_797_000_000_000)),
        secret_hash: SecretHash([9; 32]),
        created_by: "root".into(),
        properties: vec!["os=linux".into(), "pool=trusted".into()],
    })
}

fn task(phase: Phase) -> Task {
    let report = |attempt: u32, outcome| Report {
        attempt,
        fencing_token: Position(u64::from(attempt)),
        digest: DIGEST,
        outcome,
    };
    Task {
        id: TASK,
        payload: Arc::from(&br#"{"to":"someone"}"#[..]),
        priority: 5,
        attempt: 9,
        releases: 4,
        created_at: Time(1_789_999_999_000),
        created: Position(40),
        last: Position(123_450),
        phase,
        cancel: Some(Box::new(CancelRequest {
            cause: CancelCause::Deadline,
            reason: "deadline".into(),
            requested_at: Time(1_790_000_001_000),
            grace_until: Time(1_790_000_031_000),
        })),
        reports: vec![
            report(1, Outcome::Completed),
            report(2, Outcome::Failed),
            report(3, Outcome::RetryAt(Time(1_790_000_002_000))),
            report(4, Outcome::Dead(DeadReason::Killed)),
            report(5, Outcome::Discarded),
        ],
        last_error: Some(Box::new(error())),
        details: details(),
        properties: properties(),
        options: Some(Arc::new(options())),
        operations: vec!["operation-1".into(), "operation-2".into()],
    }
}

fn phases() -> Vec<Phase> {
    let (at, ended) = (Time(1_790_000_003_000), Position(123_449));
    vec![
        Phase::Waiting { since: Position(90), not_before: Some(Time(1_790_000_004_000)), exhausted: true },
        Phase::Leased(Box::new(Lease {
            fencing_token: LEASE,
            worker: "worker-1".into(),
            session: Some("session-1".into()),
            request: Some(DIGEST),
            granted_at: Time(1_790_000_000_500),
            length_ms: 60_000,
            expires_at: Time(1_790_000_066_500),
            extended_at: Time(1_790_000_000_600),
            started_by: Some("worker-2".into()),
            contract: Some(authority::Contract::Scheduler),
            since: Some(Position(5)),
        })),
        Phase::Completed { at, ended, result: Arc::from(&br#"{"ok":true}"#[..]) },
        Phase::Failed { at, ended },
        Phase::Dead { at, ended, reason: DeadReason::CancelTimeout, detail: Some("no answer".into()) },
    ]
}

fn queue() -> Arc<QueueKey> {
    let scope = Scope { tenant: "acme".into(), workspace: "build".into() };
    Arc::new(QueueKey { scope, name: "mail".into() })
}

fn config() -> QueueConfig {
    QueueConfig {
        max_attempts: Some(7),
        lease_ms: Some(90_000),
        heartbeat_interval_ms: Some(30_000),
        cancel_grace_ms: Some(0),
        backoff: Some(backoff()),
        retry_on: Some(Category::ALL.to_vec()),
        max_queue_size: Some(10_000),
        retention_ms: Some(86_400_000),
        push: Some(Arc::new(PushTarget {
            url: "https://hooks.example.com/mail".into(),
            concurrency: 25,
            headers: vec![("x-key".into(), "value-1".into()), ("x-team".into(), "mail".into())],
            secret: Some("sixteen bytes or more".into()),
        })),
    }
}

fn backoff() -> Backoff {
    Backoff { initial_ms: 500, factor_permille: 1_500, max_ms: 60_000, jitter_permille: 100 }
}

fn properties() -> Arc<Properties> {
    Arc::new(Properties::new([("arch".into(), "x86_64".into()), ("os".into(), "linux".into())]))
}

fn error() -> TaskError {
    TaskError {
        category: Category::Infrastructure,
        code: Some("E42".into()),
        message: "the disk is gone".into(),
    }
}

fn details() -> Option<Arc<ReportDetails>> {
    Some(Arc::new(ReportDetails {
        metrics: Some(Arc::from(&br#"{"cpuTimeMs":7}"#[..])),
        stack_trace: Some("at main".into()),
        cancelled_during_phase: Some("upload".into()),
        partial_progress: Some(Arc::from(&br#"{"done":3}"#[..])),
    }))
}

fn options() -> TaskOptions {
    TaskOptions {
        dedup: Some(Dedup { key: "order-42".into(), content: DIGEST }),
        deadline: Some(Time(1_790_000_900_000)),
        timeout_ms: Some(600_000),
        lease_ms: Some(45_000),
        max_attempts: Some(5),
        backoff: Some(backoff()),
        run_id: Some("run-1".into()),
        asset_id: Some("asset-1".into()),
        task_key: Some("key-1".into()),
        resources: Some(Arc::from(&br#"{"cpu":2}"#[..])),
        redrive_of: Some(OTHER),
    }
}
