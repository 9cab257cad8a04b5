//! A worker that falls silent loses its tasks to others.

use serde_json::json;
use wire::grpc::{TaskState, Verdict};

use super::{Worker, committed, verdict};
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S3-38"], "an expired lease is requeued with all that its task has", |s| {
        Box::pin(requeued(s))
    }),
    Check::new(&["S3-38"], "a report of an expired lease is OK, VERDICT_CANCELLED, and thrown away", |s| {
        Box::pin(late(s))
    }),
    Check::new(&["S3-38"], "a task whose attempts all ran out is DEAD", |s| Box::pin(worn_out(s))),
];

async fn requeued(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue_with(json!({"leaseMs": 300, "maxAttempts": 5})).await?;
    let (silent, other) = (Worker::register(subject).await?, Worker::register(subject).await?);
    let first = silent.leased(&queue).await?;
    let again = other.lease(&queue).await?;
    must((&again.task_id, again.attempt) == (&first.task_id, 2), || format!("then came {again:?}"))?;
    must(again.payload == first.payload && again.lease_id != first.lease_id, || {
        format!("then came {again:?}")
    })
}

async fn late(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue_with(json!({"leaseMs": 2_000, "maxAttempts": 5})).await?;
    let (silent, other) = (Worker::register(subject).await?, Worker::register(subject).await?);
    let first = silent.leased(&queue).await?;
    let again = other.lease(&queue).await?;
    verdict(&silent.send(silent.completed(&first, r#""late""#)).await?, Verdict::Cancelled)?;
    committed(&other.send(other.completed(&again, r#""in time""#)).await?, TaskState::Completed)?;
    verdict(&silent.send(silent.completed(&first, r#""late""#)).await?, Verdict::Cancelled)?;
    subject.task(&first.task_id).await?.has("result", "in time")?;
    Ok(())
}

async fn worn_out(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue_with(json!({"leaseMs": 300, "maxAttempts": 1})).await?;
    let worker = Worker::register(subject).await?;
    let held = worker.leased(&queue).await?;
    subject.ended(&held.task_id).await?.has("state", "DEAD")?.has("reason", "HEARTBEAT_TIMEOUT")?;
    verdict(&worker.send(worker.completed(&held, "1")).await?, Verdict::Cancelled)
}
