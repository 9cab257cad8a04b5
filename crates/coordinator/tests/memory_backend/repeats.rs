//! The table of repeats: each command and each call of the registry gets the same answer when its first answer was lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use authority::command::*;
use authority::event::ReleaseCause;
use authority::{ApiKey, Category, Digest, QueueConfig, Role, SecretHash, TaskError, TaskId, command_table};
use coordinator::{Handle, Order, OrderWorker, Registration, Router, RouterOptions, WorkerStatus};
use ledger::memory::MemoryStorage;

use crate::support::direct_peer::{Answers, DirectPeer, Owner, address};
use crate::support::{completion, lease, lease_ref, queue, scope, submit};

/// Commands that no caller sends.
const INTERNAL: [&str; 4] = ["EndWorker", "TakeOver", "Tick", "Purge"];

macro_rules! names {
    ($($Name:ident($payload:ty) => $answer:ident($type:ty) $(, $(#[$doc:meta])* call $call:ident)?;)*) => {
        [$(stringify!($Name),)*]
    };
}

/// Sends every command through the handle, and says what each was answered.
async fn script(handle: &Handle) -> Vec<(&'static str, String)> {
    let mut answers = Vec::new();
    macro_rules! step {
        ($name:literal, $call:expr) => {{
            let answer = $call.await.unwrap();
            answers.push(($name, format!("{answer:?}")));
        }};
    }
    for id in 1..=8 {
        step!("SubmitTask", handle.submit(submit(id, "q")));
    }
    let poll = |worker| LeaseTasks { max_tasks: 2, ..lease(worker, "q") };
    let grants = handle.lease(poll("w"), Duration::ZERO).await.unwrap();
    let leases: Vec<_> = grants.iter().map(|grant| (grant.task, grant.fencing_token)).collect();
    answers.push(("LeaseTasks", format!("{leases:?}")));
    let (one, two) = (&grants[0], &grants[1]);
    let started_by = Arc::from("w");
    step!("StartAttempt", handle.start(StartAttempt { lease: lease_ref("w", one), started_by }));
    let extend = ExtendLease { lease: lease_ref("w", one) };
    step!("ExtendLease", async { handle.heartbeat(extend, None).await.map(|answer| is_extended(&answer)) });
    step!("ReportCompletion", handle.complete(completion("w", one)));
    let failure = ReportFailure {
        lease: lease_ref("w", two),
        digest: Digest([8; 16]),
        error: TaskError { category: Category::UserCode, code: None, message: Arc::from("no") },
        details: None,
        retryable: Some(false),
        draw: 0,
    };
    step!("ReportFailure", handle.fail(failure));
    let redrive = RedriveTask { scope: scope(), task: two.task, id: TaskId(20), by: None };
    step!("RedriveTask", handle.redrive(redrive));
    let grants = handle.lease(poll("v"), Duration::ZERO).await.unwrap();
    let release = ReleaseLease { lease: lease_ref("v", &grants[0]), cause: ReleaseCause::Worker };
    step!("ReleaseLease", handle.release(release));
    let task = grants[1].task;
    step!("CancelTask", handle.cancel(CancelTask { scope: scope(), task, reason: "r".into(), by: None }));
    step!("KillTask", handle.kill(KillTask { scope: scope(), task, detail: None, by: None }));
    let config = QueueConfig { max_attempts: Some(7), ..QueueConfig::default() };
    step!("ConfigureQueue", handle.configure(ConfigureQueue { queue: queue("q"), config, by: None }));
    let session = LeaseTasks { session: Some(Arc::from("old")), ..lease("s", "q") };
    handle.lease(session, Duration::ZERO).await.unwrap();
    let (tenant, worker) = (scope().tenant, Arc::from("s"));
    let start = StartSession { tenant, worker, session: Arc::from("new") };
    step!("StartSession", handle.start_session(start));
    let (task, operation) = (TaskId(8), Arc::<str>::from("o"));
    let attach = AttachOperation { scope: scope(), task, operation: operation.clone() };
    step!("AttachOperation", handle.attach(attach));
    step!("DetachOperation", handle.detach(DetachOperation { scope: scope(), task, operation, by: None }));
    step!("RotateTokenKey", handle.rotate_token_key(RotateTokenKey { key_id: "k2".into(), by: None }));
    step!("CreateKey", handle.create_key(CreateKey { key: Arc::new(key()), by: None }));
    let revoke = |id: &str| RevokeKey { key_id: id.into(), revoked_by: "a".into(), by: None };
    step!("RevokeKey", handle.revoke_key(revoke("k")));
    step!("RevokeKey", handle.revoke_key(revoke("never")));
    let order = OrderWorker { tenant: scope().tenant, worker: Arc::from("w"), order: Order::Drain };
    step!("an order", handle.order(order));
    let (worker, registration) = (Arc::from("r"), Registration::default());
    step!("Register a new worker", handle.register(&scope(), &worker, registration.clone()));
    step!("RecordStatus", handle.record_status(&scope(), &worker, None, WorkerStatus::default()));
    step!("Unregister", handle.unregister(&scope(), &worker, None));
    // A worker that was heard before and registers again has not started anew.
    step!("RecordHeartbeat", handle.record_heartbeat(&scope(), &Arc::from("w")));
    step!("Register a known worker", handle.register(&scope(), &Arc::from("w"), registration));
    answers
}

fn is_extended(answer: &ExtendAnswer) -> bool {
    matches!(answer, ExtendAnswer::Extended { cancel: None, .. })
}

fn key() -> ApiKey {
    ApiKey {
        id: "k".into(),
        name: "name".into(),
        tenants: vec!["default".into()],
        roles: vec![Role::Worker],
        queues: Vec::new(),
        worker_prefix: None,
        expires_at: None,
        secret_hash: SecretHash([1; 32]),
        created_by: "a".into(),
        properties: Vec::new(),
    }
}

async fn answers(answers: Answers) -> Vec<(&'static str, String)> {
    let owner = Owner::start(&MemoryStorage::default());
    let (router, handle) = Router::new(RouterOptions::default());
    router.forward(owner.epoch(), address("owner"), DirectPeer::new(owner.router.inbound(), answers));
    script(&handle).await
}

#[tokio::test]
async fn c17_a_repeated_call_gets_the_answer_of_the_first() {
    let first = answers(Answers::Arrive).await;
    assert_eq!(answers(Answers::LostOnce).await, first);
    let sent: BTreeSet<_> = first.iter().map(|(name, _)| *name).collect();
    for name in command_table!(names) {
        assert!(sent.contains(name) || INTERNAL.contains(&name), "{name} is not in the table of repeats");
    }
}
