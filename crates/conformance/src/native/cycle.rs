//! The worker's loop when all goes well.

use serde_json::{Value, json};

use super::{WAIT_MS, ask, committed, lease, lease_field, leased, nothing_to_lease};
use crate::answer::{Spelling, same};
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S0-3"], "a worker leases, beats, completes, and the result is kept", |s| {
        Box::pin(the_loop(s))
    }),
    Check::new(&["S0-3", "S4-9"], "a lease says what it is about, in camelCase", |s| Box::pin(a_lease(s))),
    Check::new(&["S0-3"], "a poll waits for a task, and ends empty when none comes", |s| Box::pin(polls(s))),
    Check::new(
        &["S0-7", "S4-25", "S4-26"],
        "COMMITTED on a completion means a final task without a lease",
        |s| Box::pin(committed_is_final(s)),
    ),
    Check::new(&["S4-6", "S4-17"], "a new task is WAITING, at attempt 0, with its payload", |s| {
        Box::pin(created(s))
    }),
];

async fn the_loop(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let held = leased(subject, &queue).await?;
    held.beat(subject).await?.is(200)?.has("shouldCancel", false)?.time("expiresAt")?;
    let result = json!({"sum": 3, "list": [1, null, "ü"]});
    committed(&held.complete(subject, result.clone()).await?, "COMPLETED")?;
    subject.task(&held.task).await?.has("state", "COMPLETED")?.has("result", result)?;
    nothing_to_lease(subject, &queue).await
}

async fn a_lease(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let held = leased(subject, &queue).await?;
    let granted = &held.granted;
    granted
        .has(&lease_field("attempt"), 1)?
        .has(&lease_field("queue"), queue)?
        .has(&lease_field("payload"), json!({"n": 1}))?;
    granted.time(&lease_field("expiresAt"))?;
    let interval_ms = granted.whole(&lease_field("heartbeatIntervalMs"))?;
    must(interval_ms > 0, || "`heartbeatIntervalMs` should be more than 0".into())?;
    granted.whole(&lease_field("fencingToken"))?;
    granted.has_type("application/json")?;
    let answer = held.beat(subject).await?;
    answer.is(200)?.is_spelt(Spelling::Camel)?;
    Ok(())
}

async fn polls(subject: &Subject) -> Result<(), Finding> {
    let (queue, worker) = (subject.queue(), subject.worker());
    nothing_to_lease(subject, &queue).await?;
    let submit = async {
        // The poll is on its way before the task is; whichever is first, the task must come.
        tokio::task::yield_now().await;
        subject.submit(&queue).await
    };
    let (answer, task) = tokio::join!(ask(subject, &worker, &queue, WAIT_MS), submit);
    let (answer, task) = (answer?, task?);
    answer.has(&lease_field("taskId"), task)?;
    Ok(())
}

async fn committed_is_final(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue()).await?;
    committed(&held.complete(subject, json!(1)).await?, "COMPLETED")?;
    let shown = subject.task(&held.task).await?;
    shown.has("state", "COMPLETED")?.has("attempt", 1)?.has_no("lease")?.time("finishedAt")?;
    held.beat(subject).await?.is(410)?;
    Ok(())
}

async fn created(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let payload = json!({"a": [1, 2.5, {"b": null}], "text": "\"\\ü"});
    let answer = subject.post("/v1/tasks", &json!({"queue": queue, "payload": payload})).await?;
    answer.is(201)?.has("state", "WAITING")?;
    let shown = subject.task(&answer.text("taskId")?).await?;
    shown.has("state", "WAITING")?.has("attempt", 0)?.has("queue", queue.as_str())?.has_no("lease")?;
    shown.has("payload", payload.clone())?.time("createdAt")?;
    let held = lease(subject, &subject.worker(), &queue).await?;
    let got: &Value = held.get("payload");
    must(same(got, &payload), || format!("the payload came to the worker as {got}"))
}
