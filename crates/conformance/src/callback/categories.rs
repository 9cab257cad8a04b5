//! The retry rule of each error category, when the worker does not say whether to retry.

use serde_json::json;

use super::{PushedQueue, is_final};
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S1-45"], "USER_CODE is tried again", |s| Box::pin(decides(s, "USER_CODE", "RETRY_WAIT"))),
    Check::new(&["S1-46"], "DATA_QUALITY is not tried again", |s| {
        Box::pin(decides(s, "DATA_QUALITY", "FAILED"))
    }),
    Check::new(&["S1-47"], "INFRASTRUCTURE is tried again", |s| {
        Box::pin(decides(s, "INFRASTRUCTURE", "RETRY_WAIT"))
    }),
    Check::new(&["S1-48"], "CONFIGURATION is not tried again", |s| {
        Box::pin(decides(s, "CONFIGURATION", "FAILED"))
    }),
    Check::new(&["S1-49"], "TIMEOUT is tried again, with backoff", |s| {
        Box::pin(decides(s, "TIMEOUT", "RETRY_WAIT"))
    }),
    Check::new(&["S1-50"], "CANCELLED is not tried again", |s| Box::pin(decides(s, "CANCELLED", "FAILED"))),
];

async fn decides(subject: &Subject, category: &str, state: &str) -> Result<(), Finding> {
    let mut line = PushedQueue::open(subject, json!({"backoff": {"initialMs": 60_000, "jitter": 0}})).await?;
    let pushed = line.push(subject).await?;
    let answer = pushed.completed(subject, &pushed.failed(category)).await?;
    is_final(&answer, state)?;
    if state == "FAILED" {
        subject.task(&pushed.task).await?.has("state", "FAILED")?;
        return Ok(());
    }
    subject.task(&pushed.task).await?.has("state", "WAITING")?;
    let wait = answer.time("retryAt")?.duration_since(answer.time("serverTime")?);
    must((30..=90).contains(&wait.as_secs()), || {
        format!("a backoff of 60 s was configured, and the next attempt is in {} s", wait.as_secs())
    })
}
