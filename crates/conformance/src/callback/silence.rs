//! A worker that is not heard of for the heartbeat timeout has lost its attempt.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{PushedQueue, acknowledged, refused, terminal};
use crate::finding::must;
use crate::{Check, Finding, Subject};

const TIMEOUT: Duration = Duration::from_millis(1_500);
/// What may pass between the end of a lease and its being seen, over the network and back.
const SLACK: Duration = Duration::from_secs(12);

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S1-22", "S1-38"], "after the timeout a heartbeat is 410 task_expired, for good", |s| {
        Box::pin(expired(s))
    }),
    Check::new(&["S1-39"], "a task whose last worker fell silent FAILED, for HEARTBEAT_TIMEOUT", |s| {
        Box::pin(failed(s))
    }),
    Check::new(
        &["S1-38", "S1-40"],
        "silence is noticed when the timeout is over, not earlier, and soon",
        |s| Box::pin(in_time(s)),
    ),
    Check::new(&["S1-38"], "with attempts left, the task is pushed again with another token", |s| {
        Box::pin(again(s))
    }),
];

fn config(max_attempts: u32) -> serde_json::Value {
    let ms = TIMEOUT.as_millis() as u64;
    json!({"heartbeatTimeoutMs": ms, "heartbeatIntervalMs": ms / 3, "maxAttempts": max_attempts})
}

async fn expired(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, config(1)).await?.push(subject).await?;
    acknowledged(&pushed.started(subject).await?)?;
    subject.ended(&pushed.task).await?;
    for _ in 0..2 {
        refused(&pushed.beat(subject).await?, 410, "task_expired")?;
    }
    Ok(())
}

async fn failed(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, config(1)).await?.push(subject).await?;
    acknowledged(&pushed.started(subject).await?)?;
    subject.ended(&pushed.task).await?.has("reason", "HEARTBEAT_TIMEOUT")?;
    terminal(&pushed.started(subject).await?, "FAILED")?;
    terminal(&pushed.completed(subject, &pushed.succeeded(json!(1))).await?, "FAILED")
}

async fn in_time(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, config(1)).await?.push(subject).await?;
    let start = Instant::now();
    acknowledged(&pushed.started(subject).await?)?;
    let heard = Instant::now();
    subject.ended(&pushed.task).await?;
    must(start.elapsed() >= TIMEOUT, || {
        format!("{:?} after its start the task was given up", start.elapsed())
    })?;
    must(heard.elapsed() <= TIMEOUT + SLACK, || format!("silence was noticed after {:?}", heard.elapsed()))
}

async fn again(subject: &Subject) -> Result<(), Finding> {
    let mut line = PushedQueue::open(subject, config(3)).await?;
    let first = line.push(subject).await?;
    acknowledged(&first.started(subject).await?)?;
    let second = line.next().await?;
    second.envelope.has("taskId", first.task.as_str())?.has("attempt", 2)?;
    must(second.token != first.token, || "the second attempt came with the token of the first".into())
}
