//! ReportHeartbeat: a worker lives, and so do its leases.

use std::time::Duration;

use contract_clients::grpc;
use prost_types::Timestamp;
use serde_json::json;
use wire::grpc::{HeartbeatRequest, LeaseStatus, LeasedTask, TaskState};

use super::{Worker, committed};
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S3-12"], "a heartbeat moves the end of the leases that it names", |s| Box::pin(named(s))),
    Check::new(&["S3-12"], "a heartbeat that names none keeps all leases of its worker", |s| {
        Box::pin(unnamed(s))
    }),
    Check::new(&["S3-12"], "a heartbeat tells of a cancel, lease by lease", |s| Box::pin(cancel(s))),
    Check::new(&["S3-12"], "a heartbeat tells of a lease that is lost", |s| Box::pin(lost(s))),
];

fn about(worker: &Worker<'_>, tasks: &[&LeasedTask]) -> HeartbeatRequest {
    let leases = tasks.iter().map(|task| grpc::heartbeat(&task.lease_id)).collect();
    HeartbeatRequest { leases, ..worker.beat() }
}

async fn beat(worker: &Worker<'_>, task: &LeasedTask) -> Result<LeaseStatus, Finding> {
    let answer = worker.heartbeat(about(worker, &[task])).await?;
    let found = answer.leases.iter().find(|lease| lease.lease_id == task.lease_id).cloned();
    found.ok_or_else(|| Finding::broken(format!("ReportHeartbeat says nothing of the lease: {answer:?}")))
}

fn moment(time: Option<Timestamp>) -> (i64, i32) {
    time.map_or((0, 0), |time| (time.seconds, time.nanos))
}

async fn named(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    let held = worker.leased(&subject.queue_with(json!({"leaseMs": 3_000})).await?).await?;
    // A coordinator need not record an extension that is worth less than a tenth of the lease.
    tokio::time::sleep(Duration::from_millis(400)).await;
    let answer = beat(&worker, &held).await?;
    let (before, after) = (moment(held.lease_expires_at), moment(answer.expires_at));
    must(after > before && !answer.lost, || {
        format!("the lease should live longer than {before:?}: {answer:?}")
    })
}

async fn unnamed(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    let held = worker.leased(&subject.queue_with(json!({"leaseMs": 4_000})).await?).await?;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        worker.heartbeat(worker.beat()).await?;
    }
    committed(&worker.send(worker.completed(&held, "1")).await?, TaskState::Completed)
}

async fn cancel(subject: &Subject) -> Result<(), Finding> {
    let (worker, queue) = (Worker::register(subject).await?, subject.queue());
    let (held, other) = (worker.leased(&queue).await?, worker.leased(&queue).await?);
    subject.cancel(&held.task_id, "enough").await?;
    let answer = beat(&worker, &held).await?;
    must(answer.should_cancel && answer.cancel_reason == "enough", || {
        format!("the lease was answered {answer:?}")
    })?;
    let answer = beat(&worker, &other).await?;
    must(!answer.should_cancel && !answer.lost, || format!("the other lease was answered {answer:?}"))
}

async fn lost(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    let held = worker.leased(&subject.queue_with(json!({"leaseMs": 300, "maxAttempts": 1})).await?).await?;
    subject.ended(&held.task_id).await?;
    let answer = beat(&worker, &held).await?;
    must(answer.lost, || format!("the lease expired, and was answered {answer:?}"))
}
