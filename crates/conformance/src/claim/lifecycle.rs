//! A job from claim to end: what its records are, and what becomes of it when its worker falls silent.

use serde_json::json;

use super::{accepted, claim_next, claimed, nothing_to_claim, too_late};
use crate::answer::{Spelling, must_differ};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S2-9", "S2-6"], "a claimed job is leased to its worker and claimed by nobody else", |s| {
        Box::pin(exclusive(s))
    }),
    Check::new(&["S2-4", "S2-5", "S2-7"], "a job keeps its id; attempt and message are new each time", |s| {
        Box::pin(entities(s))
    }),
    Check::new(&["S2-22", "S2-23"], "a completion is answered ok and ack, in snake_case", |s| {
        Box::pin(completes(s))
    }),
    Check::new(
        &["S2-12", "S2-27"],
        "when ack is told, result, state and end of the lease are there to see",
        |s| Box::pin(at_once(s)),
    ),
    Check::new(&["S2-14", "S2-15"], "silence puts the job on its stream again, with a new message", |s| {
        Box::pin(requeues(s))
    }),
    Check::new(&["S2-15"], "a job whose attempts all ran out is a dead letter", |s| Box::pin(dead_letter(s))),
];

async fn exclusive(subject: &Subject) -> Result<(), Finding> {
    let stream = subject.queue();
    let job = claimed(subject, &stream).await?;
    let shown = subject.task(&job.id).await?;
    shown.has("state", "LEASED")?.has("/lease/workerId", job.worker.as_str())?;
    nothing_to_claim(subject, &stream).await?;
    job.beat(subject).await?.is(200)?;
    nothing_to_claim(subject, &stream).await
}

async fn entities(subject: &Subject) -> Result<(), Finding> {
    let queue =
        subject.queue_with(json!({"maxAttempts": 3, "backoff": {"initialMs": 0, "jitter": 0}})).await?;
    let first = claimed(subject, &queue).await?;
    accepted(&first.fail(subject, true).await?)?;
    let second = claim_next(subject, &first.worker, &queue).await?;
    second.claimed.has("job_id", first.id.as_str())?;
    must_differ("attempt_id", &first.attempt, &second.attempt)?;
    must_differ("lease_token", &first.token, &second.token)?;
    must_differ("message_id", &first.claimed.text("message_id")?, &second.claimed.text("message_id")?)
}

async fn completes(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue()).await?;
    let answer = job.complete(subject, json!({"artifacts": ["s3://x"], "timings": {"ms": 5}})).await?;
    accepted(&answer)?;
    answer.is_spelt(Spelling::Snake)?;
    Ok(())
}

async fn at_once(subject: &Subject) -> Result<(), Finding> {
    let stream = subject.queue();
    let job = claimed(subject, &stream).await?;
    let result = json!({"artifacts": ["s3://x"], "timings": {"ms": 5}, "outputs": [1, 2]});
    accepted(&job.complete(subject, result.clone()).await?)?;
    subject.task(&job.id).await?.has("state", "COMPLETED")?.has("result", result)?.has_no("lease")?;
    nothing_to_claim(subject, &stream).await
}

async fn requeues(subject: &Subject) -> Result<(), Finding> {
    let stream = subject.queue_with(json!({"leaseMs": 300, "maxAttempts": 5})).await?;
    let silent = claimed(subject, &stream).await?;
    let next = claim_next(subject, &subject.worker(), &stream).await?;
    next.claimed.has("job_id", silent.id.as_str())?;
    must_differ("attempt_id", &silent.attempt, &next.attempt)?;
    must_differ("message_id", &silent.claimed.text("message_id")?, &next.claimed.text("message_id")?)?;
    too_late(&silent.complete(subject, json!("late")).await?)
}

async fn dead_letter(subject: &Subject) -> Result<(), Finding> {
    let stream = subject.queue_with(json!({"leaseMs": 200, "maxAttempts": 2})).await?;
    let first = claimed(subject, &stream).await?;
    let second = claim_next(subject, &subject.worker(), &stream).await?;
    subject.ended(&first.id).await?.has("state", "DEAD")?.has("reason", "HEARTBEAT_TIMEOUT")?;
    too_late(&second.fail(subject, true).await?)?;
    nothing_to_claim(subject, &stream).await
}
