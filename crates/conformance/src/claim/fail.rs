//! `fail`: requeued or a dead letter, never both, never neither.

use serde_json::json;

use super::{accepted, call, claim_next, claimed, error, refused};
use crate::answer::{Answer, Spelling};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S2-25"], "a failure with attempts left is requeued", |s| Box::pin(requeued(s))),
    Check::new(&["S2-25"], "the last failure makes the job a dead letter", |s| Box::pin(last(s))),
    Check::new(&["S2-24", "S2-25"], "an error that is not retryable makes a dead letter at once", |s| {
        Box::pin(not_retryable(s))
    }),
    Check::new(&["S2-24"], "code, message and stack of an error are kept, unknown fields are not", |s| {
        Box::pin(kept(s))
    }),
    Check::new(&["S2-24"], "a malformed failure is refused and changes nothing", |s| Box::pin(malformed(s))),
];

fn is_requeued(answer: &Answer) -> Result<(), Finding> {
    accepted(answer)?;
    answer.has("requeued", true)?.has("dlq", false)?.is_spelt(Spelling::Snake)?;
    Ok(())
}

fn is_dead_letter(answer: &Answer) -> Result<(), Finding> {
    accepted(answer)?;
    answer.has("requeued", false)?.has("dlq", true)?;
    Ok(())
}

async fn requeued(subject: &Subject) -> Result<(), Finding> {
    let queue =
        subject.queue_with(json!({"maxAttempts": 2, "backoff": {"initialMs": 0, "jitter": 0}})).await?;
    let job = claimed(subject, &queue).await?;
    is_requeued(&job.fail(subject, true).await?)?;
    subject.task(&job.id).await?.has("state", "WAITING")?;
    claim_next(subject, &job.worker, &queue).await?.claimed.has("job_id", job.id)?;
    Ok(())
}

async fn last(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue_with(json!({"maxAttempts": 1})).await?).await?;
    is_dead_letter(&job.fail(subject, true).await?)?;
    subject.task(&job.id).await?.has("state", "FAILED")?;
    Ok(())
}

async fn not_retryable(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue()).await?;
    is_dead_letter(&job.fail(subject, false).await?)?;
    subject.task(&job.id).await?.has("state", "FAILED")?;
    Ok(())
}

async fn kept(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue()).await?;
    let mut error = error(false);
    error["stack"] = json!("at main");
    let mut body = job.failure(error);
    body["field_of_a_newer_worker"] = json!([1]);
    accepted(&call(subject, "fail", &body).await?)?;
    let shown = subject.task(&job.id).await?;
    shown.has("/error/code", "E1")?.has("/error/message", "bad luck")?.has("/error/stackTrace", "at main")?;
    Ok(())
}

async fn malformed(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue()).await?;
    let message = json!({"code": "E1", "message": 5});
    for error in [json!(null), json!("bad"), json!({}), json!({"code": "E1"}), message] {
        refused(&call(subject, "fail", &job.failure(error)).await?, &[400])?;
    }
    subject.task(&job.id).await?.has("state", "LEASED")?.has_no("error")?;
    Ok(())
}
