//! Whatever is sent twice, because an answer got lost, happens once.

use serde_json::json;

use super::{WAIT_MS, committed, lease_field, leased};
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S0-4"], "a poll that is repeated under its requestId gets the same lease", |s| {
        Box::pin(polls(s))
    }),
    Check::new(&["S0-4"], "a submit that is repeated under its dedupKey gets the same task", |s| {
        Box::pin(submits(s))
    }),
    Check::new(&["S0-26"], "a repeated completion is COMMITTED again and recorded once", |s| {
        Box::pin(completions(s))
    }),
    Check::new(&["S0-26"], "a repeated failure is COMMITTED again and costs one attempt", |s| {
        Box::pin(failures(s))
    }),
    Check::new(&["S0-26"], "a repeated heartbeat is answered alike", |s| Box::pin(heartbeats(s))),
];

async fn polls(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    subject.submit(&queue).await?;
    subject.submit(&queue).await?;
    let body = json!({"workerId": subject.worker(), "queues": [queue], "waitMs": WAIT_MS, "requestId": "r1"});
    let first = subject.post("/v1/leases", &body).await?;
    let lease = first.is(200)?.text(&lease_field("leaseId"))?;
    subject.post("/v1/leases", &body).await?.is(200)?.has(&lease_field("leaseId"), lease)?;
    Ok(())
}

async fn submits(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let task = json!({"queue": queue, "payload": {"a": 1, "b": 2}, "dedupKey": "k"});
    let first = subject.post("/v1/tasks", &task).await?.is(201)?.text("taskId")?;
    let respelt = json!({"dedupKey": "k", "payload": {"b": 2, "a": 1}, "queue": queue});
    subject.post("/v1/tasks", &respelt).await?.is(200)?.has("taskId", first)?;
    let other = json!({"queue": queue, "payload": 2, "dedupKey": "k"});
    subject.post("/v1/tasks", &other).await?.is(409)?.has("code", "dedup_conflict")?;
    Ok(())
}

async fn completions(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue()).await?;
    let first = held.complete(subject, json!({"a": 1, "b": [2]})).await?;
    committed(&first, "COMPLETED")?;
    let kinds = subject.kinds(&held.task).await?;
    held.complete(subject, json!({"a": 1, "b": [2]})).await?.repeats(&first)?;
    let respelt = format!(
        r#"{{ "result" : {{"b":[2.0], "a":1}}, "taskId":"{}", "workerId":"{}"}}"#,
        held.task, held.worker
    );
    subject.post_text(&held.path("complete"), &respelt).await?.repeats(&first)?;
    let has_more = subject.kinds(&held.task).await? != kinds;
    must(!has_more, || "a repeated completion added to the task's history".into())
}

async fn failures(subject: &Subject) -> Result<(), Finding> {
    let queue =
        subject.queue_with(json!({"maxAttempts": 3, "backoff": {"initialMs": 60_000, "jitter": 0}})).await?;
    let held = leased(subject, &queue).await?;
    let first = held.fail(subject, "bad luck", true).await?;
    committed(&first, "WAITING")?;
    for _ in 0..3 {
        held.fail(subject, "bad luck", true).await?.repeats(&first)?;
    }
    subject.task(&held.task).await?.has("state", "WAITING")?.has("attempt", 1)?;
    Ok(())
}

async fn heartbeats(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue()).await?;
    for _ in 0..3 {
        let answer = held.beat(subject).await?;
        answer.is(200)?.has("shouldCancel", false)?.time("expiresAt")?;
    }
    subject.task(&held.task).await?.has("state", "LEASED")?.has("attempt", 1)?;
    committed(&held.complete(subject, json!(1)).await?, "COMPLETED")
}
