//! `heartbeat`: a worker is alive, and learns whether it should stop.

use std::time::Duration;

use serde_json::json;

use super::{PushedQueue, acknowledged, is_final, refused};
use crate::answer::Spelling;
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        &["S1-2", "S1-17", "S1-19"],
        "a heartbeat is acknowledged, with shouldCancel and the time",
        |s| Box::pin(beats(s)),
    ),
    Check::new(&["S1-17"], "a malformed heartbeat is refused", |s| Box::pin(malformed(s))),
    Check::new(&["S1-18"], "only the time of receipt counts", |s| Box::pin(receipt(s))),
    Check::new(&["S1-37"], "heartbeats keep a task beyond its first timeout", |s| Box::pin(keeps(s))),
];

async fn beats(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    let body = pushed.body(json!({"heartbeatAt": "2025-01-15T10:05:00Z", "progressPct": 45,
        "message": "Processing partition 5 of 10"}));
    let answer = pushed.call(subject, "heartbeat", &body).await?;
    acknowledged(&answer)?;
    answer.has("shouldCancel", false)?.is_spelt(Spelling::Camel)?;
    Ok(())
}

async fn malformed(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    for body in [
        json!({}),
        json!({"attempt": 1, "workerId": 7}),
        pushed.body(json!({"progressPct": "half"})),
        pushed.body(json!({"heartbeatAt": 5})),
    ] {
        refused(&pushed.call(subject, "heartbeat", &body).await?, 400, "invalid_argument")?;
    }
    Ok(())
}

async fn receipt(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    let first = pushed.beat(subject).await?.is(200)?.time("serverTime")?;
    for at in ["1970-01-01T00:00:00Z", "9999-12-30T00:00:00Z"] {
        let answer = pushed.call(subject, "heartbeat", &pushed.body(json!({"heartbeatAt": at}))).await?;
        acknowledged(&answer)?;
        let now = answer.time("serverTime")?;
        let passed = now.duration_since(first).as_secs();
        must((0..60).contains(&passed), || {
            format!("after heartbeatAt {at} the server's time went to {now}")
        })?;
    }
    is_final(&pushed.completed(subject, &pushed.succeeded(json!(1))).await?, "SUCCEEDED")
}

async fn keeps(subject: &Subject) -> Result<(), Finding> {
    let mut line = PushedQueue::open(subject, json!({"heartbeatTimeoutMs": 4_000, "maxAttempts": 1})).await?;
    let pushed = line.push(subject).await?;
    acknowledged(&pushed.started(subject).await?)?;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        acknowledged(&pushed.beat(subject).await?)?;
    }
    is_final(&pushed.completed(subject, &pushed.succeeded(json!(1))).await?, "SUCCEEDED")
}
