//! The coordinator decides what follows a failure, and workers learn of a cancel.

use serde_json::json;

use super::{cancelled, committed, lease, lease_field, leased};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S0-25", "S4-29"], "a failure is tried again until its attempts are used up", |s| {
        Box::pin(retries(s))
    }),
    Check::new(&["S0-25"], "a failure that is not retryable is final", |s| Box::pin(not_retryable(s))),
    Check::new(&["S0-25"], "an error is kept in its worker's words", |s| Box::pin(keeps_the_error(s))),
    Check::new(
        &["S0-25"],
        "the details of a report are kept, and its partial progress reaches the next attempt",
        |s| Box::pin(keeps_details(s)),
    ),
    Check::new(&["S0-5"], "unknown fields of reports and heartbeats are ignored", |s| Box::pin(newer(s))),
    Check::new(&["S0-1"], "a cancel reaches the worker with a heartbeat, and its stop ends the task", |s| {
        Box::pin(cancels(s))
    }),
    Check::new(&["S0-1"], "a task that was cancelled before its lease ended never waits again", |s| {
        Box::pin(cancelled_and_released(s))
    }),
];

async fn retries(subject: &Subject) -> Result<(), Finding> {
    let queue =
        subject.queue_with(json!({"maxAttempts": 2, "backoff": {"initialMs": 0, "jitter": 0}})).await?;
    let first = leased(subject, &queue).await?;
    let answer = first.fail(subject, "bad luck", true).await?;
    committed(&answer, "WAITING")?;
    answer.time("retryAt")?;
    let second = lease(subject, &subject.worker(), &queue).await?;
    second.granted.has(&lease_field("taskId"), first.task.as_str())?.has(&lease_field("attempt"), 2)?;
    let answer = second.fail(subject, "bad luck", true).await?;
    committed(&answer, "FAILED")?;
    answer.has_no("retryAt")?;
    subject.task(&first.task).await?.has("state", "FAILED")?.has("attempt", 2)?.has_no("lease")?;
    Ok(())
}

async fn not_retryable(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let held = leased(subject, &queue).await?;
    committed(&held.fail(subject, "no use", false).await?, "FAILED")?;
    let held = leased(subject, &queue).await?;
    let body =
        json!({"workerId": held.worker, "taskId": held.task, "reason": "x", "category": "CONFIGURATION"});
    committed(&subject.post(&held.path("fail"), &body).await?, "FAILED")
}

async fn keeps_the_error(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue()).await?;
    let body = json!({"workerId": held.worker, "taskId": held.task, "reason": "no such column",
        "category": "DATA_QUALITY"});
    committed(&subject.post(&held.path("fail"), &body).await?, "FAILED")?;
    let shown = subject.task(&held.task).await?;
    shown.has("/error/category", "DATA_QUALITY")?.has("/error/message", "no such column")?;
    Ok(())
}

async fn keeps_details(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue_with(json!({"backoff": {"initialMs": 0, "jitter": 0}})).await?;
    let first = leased(subject, &queue).await?;
    let error = json!({"category": "TIMEOUT", "code": "E1", "message": "too slow", "stack": "at main"});
    let (metrics, progress) = (json!({"cpuTimeMs": 7}), json!({"records": 12}));
    let body = json!({"workerId": first.worker, "taskId": first.task, "error": error, "metrics": metrics,
        "partialProgress": progress});
    committed(&subject.post(&first.path("fail"), &body).await?, "WAITING")?;
    let shown = subject.task(&first.task).await?;
    shown.has("/error/message", "too slow")?.has("/error/code", "E1")?.has("/error/stackTrace", "at main")?;
    shown.has("metrics", metrics)?;
    let second = lease(subject, &subject.worker(), &queue).await?;
    second.granted.has(&lease_field("partialProgress"), progress)?;
    Ok(())
}

async fn newer(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue_with(json!({"backoff": {"initialMs": 0, "jitter": 0}})).await?;
    let first = leased(subject, &queue).await?;
    let body =
        |worker: &str, task: &str| json!({"workerId": worker, "taskId": task, "fieldOfANewerWorker": [1]});
    let mut failed = body(&first.worker, &first.task);
    failed["reason"] = json!("bad luck");
    committed(&subject.post(&first.path("fail"), &failed).await?, "WAITING")?;
    let second = lease(subject, &subject.worker(), &queue).await?;
    subject.post(&second.path("heartbeat"), &body(&second.worker, &second.task)).await?.is(200)?;
    let mut completed = body(&second.worker, &second.task);
    completed["result"] = json!(1);
    committed(&subject.post(&second.path("complete"), &completed).await?, "COMPLETED")
}

async fn cancels(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue()).await?;
    subject.cancel(&held.task, "changed my mind").await?;
    subject.cancel(&held.task, "changed my mind").await?;
    let answer = held.beat(subject).await?;
    answer.is(200)?.has("shouldCancel", true)?.has("cancelReason", "changed my mind")?;
    let body =
        json!({"workerId": held.worker, "taskId": held.task, "reason": "stopped", "category": "CANCELLED"});
    committed(&subject.post(&held.path("fail"), &body).await?, "DEAD")
}

async fn cancelled_and_released(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue()).await?;
    subject.cancel(&held.task, "enough").await?;
    held.release(subject).await?.is(200)?;
    subject.task(&held.task).await?.has("state", "DEAD")?;
    cancelled(&held.complete(subject, json!(1)).await?)
}
