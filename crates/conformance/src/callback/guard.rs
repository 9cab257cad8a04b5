//! The attempt guard: what is late, repeated or of another attempt changes nothing.

use serde_json::json;

use super::{Pushed, PushedQueue, acknowledged, is_final, mismatch, refused};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S1-52"], "a callback that names another attempt than its token is a mismatch", |s| {
        Box::pin(other_attempt(s))
    }),
    Check::new(&["S1-31", "S1-52"], "a callback of an attempt that was superseded is a mismatch", |s| {
        Box::pin(superseded(s))
    }),
    Check::new(&["S1-32"], "a late result is ignored", |s| Box::pin(late(s))),
    Check::new(&["S1-30"], "a repeated completion is answered alike, whatever came after", |s| {
        Box::pin(repeated(s))
    }),
    Check::new(
        &["S1-30"],
        "a conflicting report of the same attempt is 409 attempt_already_completed",
        |s| Box::pin(conflicting_report(s)),
    ),
];

/// A first attempt that was lost to silence, and the second.
async fn two_attempts(subject: &Subject) -> Result<(Pushed, Pushed), Finding> {
    let mut line = PushedQueue::open(subject, json!({"heartbeatTimeoutMs": 1_500, "maxAttempts": 5})).await?;
    let first = line.push(subject).await?;
    acknowledged(&first.started(subject).await?)?;
    let second = line.next().await?;
    second.envelope.has("taskId", first.task.as_str())?.has("attempt", 2)?;
    Ok((first, second))
}

async fn other_attempt(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    for (what, mut body) in pushed.calls() {
        body["attempt"] = json!(2);
        mismatch(&pushed.call(subject, what, &body).await?, 1, 2)?;
    }
    subject.task(&pushed.task).await?.has("state", "LEASED")?.has("attempt", 1)?;
    is_final(&pushed.completed(subject, &pushed.succeeded(json!(1))).await?, "SUCCEEDED")
}

async fn superseded(subject: &Subject) -> Result<(), Finding> {
    let (first, second) = two_attempts(subject).await?;
    for (what, body) in first.calls() {
        mismatch(&first.call(subject, what, &body).await?, 2, 1)?;
    }
    is_final(&second.completed(subject, &second.succeeded(json!("second"))).await?, "SUCCEEDED")
}

async fn late(subject: &Subject) -> Result<(), Finding> {
    let (first, second) = two_attempts(subject).await?;
    let body = first.succeeded(json!("first"));
    mismatch(&first.completed(subject, &body).await?, 2, 1)?;
    subject.task(&first.task).await?.has("state", "LEASED")?.has_no("result")?;
    is_final(&second.completed(subject, &second.succeeded(json!("second"))).await?, "SUCCEEDED")?;
    mismatch(&first.completed(subject, &body).await?, 2, 1)?;
    subject.task(&first.task).await?.has("state", "COMPLETED")?.has("result", "second")?;
    Ok(())
}

async fn repeated(subject: &Subject) -> Result<(), Finding> {
    let mut line = PushedQueue::open(subject, json!({"backoff": {"initialMs": 0, "jitter": 0}})).await?;
    let first = line.push(subject).await?;
    let failure = first.failed("USER_CODE");
    is_final(&first.completed(subject, &failure).await?, "RETRY_WAIT")?;
    is_final(&first.completed(subject, &failure).await?, "RETRY_WAIT")?;
    let second = line.next().await?;
    let success = second.succeeded(json!({"rowCount": 1, "byteSize": 2}));
    is_final(&second.completed(subject, &success).await?, "SUCCEEDED")?;
    let respelt = second.succeeded(json!({"byteSize": 2.0, "rowCount": 1}));
    is_final(&second.completed(subject, &respelt).await?, "SUCCEEDED")?;
    is_final(&first.completed(subject, &failure).await?, "RETRY_WAIT")
}

async fn conflicting_report(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    is_final(&pushed.completed(subject, &pushed.succeeded(json!(1))).await?, "SUCCEEDED")?;
    for body in [pushed.succeeded(json!(2)), pushed.failed("USER_CODE")] {
        refused(&pushed.completed(subject, &body).await?, 409, "attempt_already_completed")?;
    }
    subject.task(&pushed.task).await?.has("state", "COMPLETED")?.has("result", 1)?;
    Ok(())
}
