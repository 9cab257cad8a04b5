//! `heartbeat`: keeps a lease whose token it knows.

use std::time::Duration;

use serde_json::json;

use super::{accepted, call, claimed, refused, too_late, with};
use crate::answer::Spelling;
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S2-20", "S2-21"], "a heartbeat says ok and lease_expires_at, in snake_case", |s| {
        Box::pin(answer(s))
    }),
    Check::new(&["S2-11"], "a heartbeat moves the end of its lease", |s| Box::pin(prolongs(s))),
    Check::new(&["S2-11"], "a heartbeat whose token does not match prolongs nothing", |s| {
        Box::pin(no_match(s))
    }),
    Check::new(&["S2-29"], "heartbeats keep a lease beyond its first length", |s| Box::pin(keeps(s))),
    Check::new(&["S2-21"], "a heartbeat after the lease is over is 409, ok: false", |s| Box::pin(over(s))),
    Check::new(&["S2-21"], "a heartbeat tells of a cancel", |s| Box::pin(cancel(s))),
    Check::new(&["S2-20"], "a malformed heartbeat is refused", |s| Box::pin(malformed(s))),
];

async fn answer(subject: &Subject) -> Result<(), Finding> {
    let answer = claimed(subject, &subject.queue()).await?.beat(subject).await?;
    answer.is(200)?.has("ok", true)?.is_spelt(Spelling::Snake)?.time("lease_expires_at")?;
    Ok(())
}

async fn prolongs(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue_with(json!({"leaseMs": 3_000})).await?).await?;
    let first = job.beat(subject).await?.is(200)?.time("lease_expires_at")?;
    // A coordinator need not record an extension that is worth less than a tenth of the lease.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let second = job.beat(subject).await?.is(200)?.time("lease_expires_at")?;
    must(second > first, || format!("the heartbeat left the end of the lease at {first}"))
}

async fn no_match(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let (job, other) = (claimed(subject, &queue).await?, claimed(subject, &queue).await?);
    let before = subject.task(&job.id).await?.text("/lease/expiresAt")?;
    for token in [other.token.as_str(), "x", ""] {
        let body = with(job.heartbeat(), "lease_token", json!(token));
        refused(&call(subject, "heartbeat", &body).await?, &[400, 403])?;
    }
    let body = with(job.heartbeat(), "worker_id", json!(other.worker));
    refused(&call(subject, "heartbeat", &body).await?, &[403])?;
    subject.task(&job.id).await?.has("/lease/expiresAt", before)?;
    Ok(())
}

async fn keeps(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue_with(json!({"leaseMs": 4_000})).await?).await?;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        job.beat(subject).await?.is(200)?;
    }
    accepted(&job.complete(subject, json!(1)).await?)
}

async fn over(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue_with(json!({"leaseMs": 300, "maxAttempts": 1})).await?).await?;
    subject.ended(&job.id).await?;
    too_late(&job.beat(subject).await?)?;
    too_late(&job.beat(subject).await?)
}

async fn cancel(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue()).await?;
    subject.cancel(&job.id, "enough").await?;
    job.beat(subject)
        .await?
        .is(200)?
        .has("ok", true)?
        .has("should_cancel", true)?
        .has("cancel_reason", "enough")?;
    Ok(())
}

async fn malformed(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue()).await?;
    for field in ["worker_id", "job_id", "lease_token"] {
        let mut body = job.heartbeat();
        if let Some(fields) = body.as_object_mut() {
            fields.remove(field);
        }
        refused(&call(subject, "heartbeat", &body).await?, &[400])?;
        refused(&call(subject, "heartbeat", &with(job.heartbeat(), field, json!(7))).await?, &[400])?;
    }
    Ok(())
}
