//! The authority model as far as it shows on the wire: five states, one lease at a time, ends that stay.

use serde_json::json;

use super::{committed, lease, lease_field, leased, nothing_to_lease, rejected};
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S4-7", "S4-39", "S4-40"], "a task is WAITING without a lease, or LEASED with one", |s| {
        Box::pin(states(s))
    }),
    Check::new(&["S4-18", "S4-20", "S4-37"], "a leased task is leased to nobody else", |s| {
        Box::pin(exclusive(s))
    }),
    Check::new(&["S4-19"], "each grant raises the attempt by one, and the fencing token", |s| {
        Box::pin(attempts(s))
    }),
    Check::new(&["S4-38"], "one poll for many gives each task once", |s| Box::pin(batch(s))),
    Check::new(&["S4-41"], "a completed task never changes again", |s| Box::pin(stays(s))),
    Check::new(&["S4-5"], "the history of a task is made of the known records", |s| Box::pin(history(s))),
];

async fn states(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let task = subject.submit(&queue).await?;
    subject.task(&task).await?.has("state", "WAITING")?.has_no("lease")?;
    let held = lease(subject, &subject.worker(), &queue).await?;
    let shown = subject.task(&task).await?;
    shown.has("state", "LEASED")?.has("/lease/workerId", held.worker.as_str())?.has("/lease/attempt", 1)?;
    shown.has_no("/lease/leaseId")?;
    held.release(subject).await?.is(200)?.has("state", "WAITING")?;
    subject.task(&task).await?.has("state", "WAITING")?.has_no("lease")?;
    Ok(())
}

async fn exclusive(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let held = leased(subject, &queue).await?;
    nothing_to_lease(subject, &queue).await?;
    held.beat(subject).await?.is(200)?;
    nothing_to_lease(subject, &queue).await
}

async fn attempts(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let first = leased(subject, &queue).await?;
    first.release(subject).await?.is(200)?;
    let second = lease(subject, &subject.worker(), &queue).await?;
    second.granted.has(&lease_field("taskId"), first.task.as_str())?.has(&lease_field("attempt"), 2)?;
    let fencing = |lease: &super::Lease| lease.granted.whole(&lease_field("fencingToken"));
    let (old, new) = (fencing(&first)?, fencing(&second)?);
    must(new > old, || format!("the fencing token should rise with each lease, and went from {old} to {new}"))
}

async fn batch(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let tasks: Vec<_> = (0..5).map(|n| json!({"queue": queue, "payload": n})).collect();
    let answer = subject.post("/v1/tasks/batch", &json!({"tasks": tasks})).await?;
    answer.is(200)?.text("/tasks/4/taskId")?;
    let body = json!({"workerId": subject.worker(), "queues": [queue], "maxTasks": 100, "waitMs": 0});
    let answer = subject.post("/v1/leases", &body).await?;
    let mut got: Vec<_> =
        (0..5).map(|n| answer.text(&format!("/leases/{n}/taskId"))).collect::<Result<_, _>>()?;
    answer.has_no("/leases/5")?;
    got.sort();
    got.dedup();
    must(got.len() == 5, || "a task was leased twice in one answer".into())
}

async fn stays(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue()).await?;
    committed(&held.complete(subject, json!("done")).await?, "COMPLETED")?;
    let before = subject.task(&held.task).await?;
    rejected(&held.fail(subject, "no", false).await?, &[409])?;
    subject.cancel(&held.task, "too late").await?;
    held.beat(subject).await?.is(410)?;
    let after = subject.task(&held.task).await?;
    for field in ["state", "result", "finishedAt", "attempt"] {
        after.has(field, before.get(field).clone())?;
    }
    Ok(())
}

async fn history(subject: &Subject) -> Result<(), Finding> {
    let queue =
        subject.queue_with(json!({"maxAttempts": 4, "backoff": {"initialMs": 0, "jitter": 0}})).await?;
    let first = leased(subject, &queue).await?;
    first.fail(subject, "once", true).await?.is(200)?;
    let second = lease(subject, &subject.worker(), &queue).await?;
    second.release(subject).await?.is(200)?;
    let third = lease(subject, &subject.worker(), &queue).await?;
    third.complete(subject, json!(1)).await?.is(200)?;
    let kinds = subject.kinds(&first.task).await?;
    let expected = [
        "TaskCreated",
        "LeaseGranted",
        "TaskFailed",
        "LeaseGranted",
        "LeaseReleased",
        "LeaseGranted",
        "TaskCompleted",
    ];
    must(kinds == expected, || format!("the history should be {expected:?}, and is {kinds:?}"))
}
