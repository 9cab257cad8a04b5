//! Cancelling is cooperative, and has an end.

use serde_json::json;

use super::{PushedQueue, acknowledged, is_final, refused, terminal};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S1-20", "S1-41"], "a heartbeat carries the cancel signal and its reason", |s| {
        Box::pin(signal(s))
    }),
    Check::new(
        &["S1-25", "S1-29", "S1-42"],
        "a worker that stops reports CANCELLED, and so ends the task",
        |s| Box::pin(stops(s)),
    ),
    Check::new(&["S1-43", "S1-44"], "a worker that ignores a cancel is cut off after the grace", |s| {
        Box::pin(cut_off(s))
    }),
];

async fn signal(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    acknowledged(&pushed.started(subject).await?)?;
    subject.cancel(&pushed.task, "user_requested").await?;
    let answer = pushed.beat(subject).await?;
    acknowledged(&answer)?;
    answer.has("shouldCancel", true)?.has("cancelReason", "user_requested")?;
    Ok(())
}

async fn stops(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    acknowledged(&pushed.started(subject).await?)?;
    subject.cancel(&pushed.task, "user_requested").await?;
    is_final(&pushed.completed(subject, &pushed.cancelled()).await?, "CANCELLED")?;
    subject.task(&pushed.task).await?.has("state", "DEAD")?.has("reason", "CANCELLED")?;
    is_final(&pushed.completed(subject, &pushed.cancelled()).await?, "CANCELLED")
}

async fn cut_off(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({"cancelGracePeriodMs": 300})).await?.push(subject).await?;
    acknowledged(&pushed.started(subject).await?)?;
    subject.cancel(&pushed.task, "user_requested").await?;
    subject.ended(&pushed.task).await?.has("state", "DEAD")?.has("reason", "CANCEL_TIMEOUT")?;
    refused(&pushed.beat(subject).await?, 410, "task_expired")?;
    terminal(&pushed.completed(subject, &pushed.cancelled()).await?, "FAILED")
}
