//! `completed`: how an attempt ended, and what became of its task.

use serde_json::json;

use super::{PushedQueue, acknowledged, is_final, refused};
use crate::answer::Spelling;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        &["S1-3", "S1-24", "S1-30"],
        "a completion is acknowledged with the final state and the time",
        |s| Box::pin(completes(s)),
    ),
    Check::new(&["S1-26"], "the output of a success is the task's result", |s| Box::pin(output(s))),
    Check::new(&["S1-27"], "metrics may be told, each or none of them", |s| Box::pin(metrics(s))),
    Check::new(&["S1-25"], "an attempt SUCCEEDED or FAILED, and nothing is made up for it", |s| {
        Box::pin(outcomes(s))
    }),
    Check::new(&["S1-28"], "the error of a failure is kept, and retryable is honoured", |s| {
        Box::pin(error(s))
    }),
    Check::new(&["S1-51"], "a failure without a category is refused", |s| Box::pin(categorised(s))),
    Check::new(&["S1-24"], "a malformed completion is refused and changes nothing", |s| {
        Box::pin(malformed(s))
    }),
];

async fn completes(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    acknowledged(&pushed.started(subject).await?)?;
    let answer = pushed.completed(subject, &pushed.succeeded(json!(null))).await?;
    is_final(&answer, "SUCCEEDED")?;
    answer.is_spelt(Spelling::Camel)?;
    subject.task(&pushed.task).await?.has("state", "COMPLETED")?.has_no("lease")?;
    Ok(())
}

async fn output(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    let output = json!({"materializationId": "mat_01HGW5N7XHJM4GX29KZRXQP6NA", "rowCount": 1_000_000,
        "byteSize": 52_428_800, "outputPath": "gs://bucket/raw/events/2025-01-15/"});
    is_final(&pushed.completed(subject, &pushed.succeeded(output.clone())).await?, "SUCCEEDED")?;
    subject.task(&pushed.task).await?.has("result", output)?;
    Ok(())
}

async fn metrics(subject: &Subject) -> Result<(), Finding> {
    let mut line = PushedQueue::open(subject, json!({})).await?;
    let all = json!({"cpuTimeMs": 45_000, "peakMemoryBytes": 2_147_483_648_u64, "ioReadBytes": 10_485_760,
        "ioWriteBytes": 52_428_800});
    for metrics in [all, json!({"cpuTimeMs": 1}), json!({})] {
        let pushed = line.push(subject).await?;
        let mut body = pushed.succeeded(json!(1));
        body["metrics"] = metrics.clone();
        body["fieldOfANewerWorker"] = json!(1);
        is_final(&pushed.completed(subject, &body).await?, "SUCCEEDED")?;
        let shown = subject.task(&pushed.task).await?;
        if metrics != json!({}) {
            shown.has("metrics", metrics)?;
        }
    }
    Ok(())
}

async fn outcomes(subject: &Subject) -> Result<(), Finding> {
    let mut line = PushedQueue::open(subject, json!({"maxAttempts": 1})).await?;
    let pushed = line.push(subject).await?;
    for outcome in ["COMPLETED", "succeeded", "RETRY_WAIT", ""] {
        let body = pushed.body(json!({"outcome": outcome}));
        refused(&pushed.completed(subject, &body).await?, 400, "invalid_argument")?;
    }
    is_final(&pushed.completed(subject, &pushed.succeeded(json!(1))).await?, "SUCCEEDED")?;
    let pushed = line.push(subject).await?;
    is_final(&pushed.completed(subject, &pushed.failed("INFRASTRUCTURE")).await?, "FAILED")?;
    subject.task(&pushed.task).await?.has("state", "FAILED")?;
    Ok(())
}

async fn error(subject: &Subject) -> Result<(), Finding> {
    let mut line = PushedQueue::open(subject, json!({"backoff": {"initialMs": 60_000, "jitter": 0}})).await?;
    for (category, retryable, state) in [("DATA_QUALITY", true, "RETRY_WAIT"), ("USER_CODE", false, "FAILED")]
    {
        let pushed = line.push(subject).await?;
        let error = json!({"category": category, "message": "KeyError: 'missing_column'",
            "stackTrace": "Traceback (most recent call last):", "retryable": retryable});
        let body = pushed.body(json!({"outcome": "FAILED", "error": error}));
        is_final(&pushed.completed(subject, &body).await?, state)?;
        let shown = subject.task(&pushed.task).await?;
        shown.has("/error/category", category)?.has("/error/message", "KeyError: 'missing_column'")?;
        shown.has("/error/stackTrace", "Traceback (most recent call last):")?;
    }
    Ok(())
}

async fn categorised(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    for error in [json!(null), json!({"message": "x"}), json!({"category": "BAD_LUCK", "message": "x"})] {
        let body = pushed.body(json!({"outcome": "FAILED", "error": error}));
        refused(&pushed.completed(subject, &body).await?, 400, "invalid_argument")?;
    }
    Ok(())
}

async fn malformed(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    for body in [
        json!({}),
        json!({"attempt": 1, "outcome": "SUCCEEDED"}),
        json!({"workerId": "w", "outcome": "SUCCEEDED"}),
        pushed.body(json!({})),
        pushed.body(json!({"outcome": "SUCCEEDED", "completedAt": "soon"})),
    ] {
        refused(&pushed.completed(subject, &body).await?, 400, "invalid_argument")?;
    }
    subject.task(&pushed.task).await?.has("state", "LEASED")?;
    is_final(&pushed.completed(subject, &pushed.succeeded(json!(1))).await?, "SUCCEEDED")
}
