//! Heartbeats keep a lease, and silence ends it for good.

use std::time::Duration;

use serde_json::json;

use super::{cancelled, committed, lease, lease_field, leased};
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        &["S0-18", "S4-21", "S4-22"],
        "a heartbeat moves the end of its lease and nothing else",
        |s| Box::pin(extends(s)),
    ),
    Check::new(&["S0-18"], "heartbeats keep a lease beyond its first length", |s| Box::pin(keeps(s))),
    Check::new(
        &["S0-19", "S4-23", "S4-24"],
        "without heartbeats the lease is lost and the task waits again",
        |s| Box::pin(silence(s)),
    ),
    Check::new(&["S0-20"], "an expired lease is never revived", |s| Box::pin(never_revived(s))),
    Check::new(&["S0-19"], "a task whose attempts all ran out is DEAD", |s| Box::pin(worn_out(s))),
];

async fn extends(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue_with(json!({"leaseMs": 3_000})).await?).await?;
    let before = held.granted.time(&lease_field("expiresAt"))?;
    // A coordinator need not record an extension that is worth less than a tenth of the lease.
    tokio::time::sleep(Duration::from_millis(400)).await;
    let answer = held.beat(subject).await?;
    let after = answer.is(200)?.time("expiresAt")?;
    must(after > before, || format!("the heartbeat left the end of the lease at {before}"))?;
    subject.task(&held.task).await?.has("state", "LEASED")?.has("attempt", 1)?;
    Ok(())
}

async fn keeps(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue_with(json!({"leaseMs": 4_000})).await?).await?;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        held.beat(subject).await?.is(200)?;
    }
    committed(&held.complete(subject, json!(1)).await?, "COMPLETED")
}

async fn silence(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue_with(json!({"leaseMs": 300, "maxAttempts": 5})).await?;
    let held = leased(subject, &queue).await?;
    let next = lease(subject, &subject.worker(), &queue).await?;
    next.granted.has(&lease_field("taskId"), held.task.as_str())?.has(&lease_field("attempt"), 2)?;
    let kinds = subject.kinds(&held.task).await?;
    must(kinds.iter().any(|kind| kind == "LeaseExpired"), || {
        format!("the history should tell of LeaseExpired, and is {kinds:?}")
    })?;
    cancelled(&held.complete(subject, json!(1)).await?)
}

async fn never_revived(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue_with(json!({"leaseMs": 300, "maxAttempts": 1})).await?;
    let held = leased(subject, &queue).await?;
    subject.ended(&held.task).await?;
    for _ in 0..2 {
        held.beat(subject).await?.is(410)?;
        cancelled(&held.complete(subject, json!(1)).await?)?;
    }
    subject.task(&held.task).await?.has("state", "DEAD")?.has_no("result")?;
    Ok(())
}

async fn worn_out(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue_with(json!({"leaseMs": 200, "maxAttempts": 2})).await?;
    let held = leased(subject, &queue).await?;
    lease(subject, &subject.worker(), &queue).await?;
    let shown = subject.ended(&held.task).await?;
    shown.has("state", "DEAD")?.has("reason", "HEARTBEAT_TIMEOUT")?.has("attempt", 2)?;
    Ok(())
}
