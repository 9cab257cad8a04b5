//! Reports that come twice, late, or in another's name.

use serde_json::json;

use super::{accepted, call, claim_next, claimed, error, refused, too_late, with};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S2-2", "S2-28"], "a repeated completion is answered alike", |s| {
        Box::pin(completed_twice(s))
    }),
    Check::new(&["S2-2", "S2-28"], "a repeated failure is answered alike, whatever came after", |s| {
        Box::pin(failed_twice(s))
    }),
    Check::new(&["S2-26"], "a duplicate of the stream message does no harm", |s| Box::pin(duplicate(s))),
    Check::new(&["S2-28"], "a conflicting report of the same attempt is 409 and not acknowledged", |s| {
        Box::pin(conflicting_report(s))
    }),
    Check::new(
        &["S2-13", "S2-28"],
        "a report that comes too late is ack: true, ok: false, and changes nothing",
        |s| Box::pin(late(s)),
    ),
    Check::new(&["S2-28"], "the lease_token guards a report", |s| Box::pin(guarded(s))),
    Check::new(&["S2-28"], "the attempt_id must be the token's", |s| Box::pin(other_attempt(s))),
    Check::new(&["S2-22"], "a malformed completion is refused and changes nothing", |s| {
        Box::pin(malformed(s))
    }),
];

async fn completed_twice(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue()).await?;
    let first = job.complete(subject, json!({"a": 1, "b": 2})).await?;
    accepted(&first)?;
    for _ in 0..3 {
        job.complete(subject, json!({"b": 2.0, "a": 1})).await?.repeats(&first)?;
    }
    Ok(())
}

async fn failed_twice(subject: &Subject) -> Result<(), Finding> {
    let queue =
        subject.queue_with(json!({"maxAttempts": 2, "backoff": {"initialMs": 0, "jitter": 0}})).await?;
    let job = claimed(subject, &queue).await?;
    let first = job.fail(subject, true).await?;
    first.is(200)?.has("requeued", true)?;
    job.fail(subject, true).await?.repeats(&first)?;
    let next = claim_next(subject, &job.worker, &queue).await?;
    accepted(&next.complete(subject, json!(1)).await?)?;
    job.fail(subject, true).await?.repeats(&first)?;
    subject.task(&job.id).await?.has("state", "COMPLETED")?;
    Ok(())
}

async fn duplicate(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue()).await?;
    accepted(&job.complete(subject, json!(1)).await?)?;
    let body = with(job.completion(json!(1)), "message_id", json!("7-0"));
    accepted(&call(subject, "complete", &body).await?)?;
    subject.task(&job.id).await?.has("state", "COMPLETED")?.has("result", 1)?;
    Ok(())
}

async fn conflicting_report(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue()).await?;
    accepted(&job.complete(subject, json!(1)).await?)?;
    refused(&job.complete(subject, json!(2)).await?, &[409])?;
    refused(&job.fail(subject, true).await?, &[409])?;
    subject.task(&job.id).await?.has("state", "COMPLETED")?.has("result", 1)?;
    Ok(())
}

async fn late(subject: &Subject) -> Result<(), Finding> {
    let stream = subject.queue_with(json!({"leaseMs": 2_000, "maxAttempts": 5})).await?;
    let old = claimed(subject, &stream).await?;
    let new = claim_next(subject, &subject.worker(), &stream).await?;
    new.claimed.has("job_id", old.id.as_str())?;
    too_late(&old.complete(subject, json!("old")).await?)?;
    too_late(&old.complete(subject, json!("old")).await?)?;
    accepted(&new.complete(subject, json!("new")).await?)?;
    too_late(&old.complete(subject, json!("old")).await?)?;
    subject.task(&old.id).await?.has("result", "new")?;
    Ok(())
}

async fn guarded(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let (job, other) = (claimed(subject, &queue).await?, claimed(subject, &queue).await?);
    for (what, body) in [("complete", job.completion(json!("stolen"))), ("fail", job.failure(error(false)))] {
        for token in [other.token.as_str(), "x"] {
            let body = with(body.clone(), "lease_token", json!(token));
            refused(&call(subject, what, &body).await?, &[403])?;
        }
        let body = with(body.clone(), "worker_id", json!(other.worker));
        refused(&call(subject, what, &body).await?, &[403])?;
        let body = with(body.clone(), "job_id", json!("01900000-0000-7000-8000-000000000001"));
        refused(&call(subject, what, &with(body, "attempt_id", json!(job.attempt))).await?, &[403, 404])?;
    }
    subject.task(&job.id).await?.has("state", "LEASED")?;
    accepted(&job.complete(subject, json!(1)).await?)
}

async fn other_attempt(subject: &Subject) -> Result<(), Finding> {
    let queue =
        subject.queue_with(json!({"maxAttempts": 3, "backoff": {"initialMs": 0, "jitter": 0}})).await?;
    let old = claimed(subject, &queue).await?;
    accepted(&old.fail(subject, true).await?)?;
    let new = claim_next(subject, &old.worker, &queue).await?;
    let body = with(new.completion(json!(1)), "attempt_id", json!(old.attempt));
    refused(&call(subject, "complete", &body).await?, &[400, 403, 409])?;
    let body = with(new.completion(json!(1)), "lease_token", json!(old.token));
    let answer = call(subject, "complete", &body).await?;
    answer.is_one_of(&[403, 409])?.has("ok", false)?;
    subject.task(&new.id).await?.has("state", "LEASED")?;
    accepted(&new.complete(subject, json!(1)).await?)
}

async fn malformed(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue()).await?;
    for field in ["worker_id", "job_id", "attempt_id", "lease_token"] {
        let mut body = job.completion(json!(1));
        if let Some(fields) = body.as_object_mut() {
            fields.remove(field);
        }
        refused(&call(subject, "complete", &body).await?, &[400])?;
    }
    refused(&subject.post_text("/internal/worker/complete", "{").await?, &[400])?;
    subject.task(&job.id).await?.has("state", "LEASED")?;
    Ok(())
}
