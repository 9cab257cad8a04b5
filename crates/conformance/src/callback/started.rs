//! `started`: a worker begins, or learns that it must not.

use serde_json::json;

use super::{PushedQueue, acknowledged, is_final, refused, terminal};
use crate::answer::Spelling;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S1-1", "S1-13", "S1-14"], "started is acknowledged with the server's time", |s| {
        Box::pin(begins(s))
    }),
    Check::new(&["S1-13"], "a malformed start is refused", |s| Box::pin(malformed(s))),
    Check::new(&["S1-13"], "the first worker that began binds the attempt", |s| Box::pin(binds(s))),
    Check::new(&["S1-15", "S1-41"], "started after a cancel is 409 task_already_terminal, CANCELLED", |s| {
        Box::pin(cancelled(s))
    }),
    Check::new(&["S1-15"], "started after the end is 409 task_already_terminal, with the end", |s| {
        Box::pin(ended(s))
    }),
];

async fn begins(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    let answer = pushed.started(subject).await?;
    acknowledged(&answer)?;
    answer.is_spelt(Spelling::Camel)?.has_type("application/json")?;
    acknowledged(&pushed.started(subject).await?)
}

async fn malformed(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    for body in [
        json!([]),
        json!({"workerId": "w"}),
        json!({"attempt": 1}),
        json!({"attempt": "1", "workerId": "w"}),
        json!({"attempt": 1, "workerId": "w", "startedAt": "yesterday"}),
    ] {
        refused(&pushed.call(subject, "started", &body).await?, 400, "invalid_argument")?;
    }
    Ok(())
}

async fn binds(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    acknowledged(&pushed.started(subject).await?)?;
    for (what, mut body) in pushed.calls() {
        body["workerId"] = json!("worker-2");
        refused(&pushed.call(subject, what, &body).await?, 409, "attempt_already_started")?;
    }
    is_final(&pushed.completed(subject, &pushed.succeeded(json!(1))).await?, "SUCCEEDED")
}

async fn cancelled(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    subject.cancel(&pushed.task, "user_requested").await?;
    terminal(&pushed.started(subject).await?, "CANCELLED")
}

async fn ended(subject: &Subject) -> Result<(), Finding> {
    let mut line = PushedQueue::open(subject, json!({})).await?;
    let pushed = line.push(subject).await?;
    is_final(&pushed.completed(subject, &pushed.succeeded(json!(1))).await?, "SUCCEEDED")?;
    terminal(&pushed.started(subject).await?, "SUCCEEDED")?;
    let pushed = line.push(subject).await?;
    is_final(&pushed.completed(subject, &pushed.failed("DATA_QUALITY")).await?, "FAILED")?;
    terminal(&pushed.started(subject).await?, "FAILED")
}
