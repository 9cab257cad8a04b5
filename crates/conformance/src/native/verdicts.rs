//! Every report gets one of three verdicts, and keeps it.

use serde_json::json;

use super::{cancelled, committed, forged, lease, leased, rejected};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S0-5"], "every report is answered COMMITTED, CANCELLED or REJECTED", |s| {
        Box::pin(one_of_three(s))
    }),
    Check::new(&["S0-6"], "a verdict is final for its attempt", |s| Box::pin(is_final(s))),
    Check::new(&["S0-9"], "no result is taken without COMMITTED", |s| Box::pin(only_committed(s))),
    Check::new(
        &["S0-10", "S4-11", "S4-27"],
        "a report without authority is CANCELLED, and recorded once",
        |s| Box::pin(no_authority(s)),
    ),
    Check::new(&["S0-11"], "a lease is lost to time and to another attempt", |s| Box::pin(causes(s))),
    Check::new(&["S0-12", "S4-28"], "CANCELLED is no failure and costs no attempt", |s| {
        Box::pin(no_failure(s))
    }),
    Check::new(&["S0-14"], "a lease that was never granted is REJECTED", |s| Box::pin(never_granted(s))),
    Check::new(&["S0-14"], "a report on another task is REJECTED", |s| Box::pin(other_task(s))),
    Check::new(&["S0-14"], "a malformed report is REJECTED", |s| Box::pin(malformed(s))),
    Check::new(&["S0-14"], "a conflicting report of an attempt that already reported is REJECTED", |s| {
        Box::pin(conflicting_report(s))
    }),
];

async fn one_of_three(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let held = leased(subject, &queue).await?;
    let lost = leased(subject, &queue).await?;
    lost.release(subject).await?.is(200)?;
    let mut answers = vec![held.complete(subject, json!(1)).await?, held.complete(subject, json!(1)).await?];
    answers.push(held.complete(subject, json!(2)).await?);
    answers.push(held.fail(subject, "no", true).await?);
    answers.push(lost.complete(subject, json!(1)).await?);
    answers.push(lost.fail(subject, "no", true).await?);
    answers.push(subject.post_text(&held.path("complete"), "{").await?);
    answers.push(subject.post("/v1/leases/nothing/complete", &held.completion(json!(1)).body).await?);
    for answer in answers {
        let verdict = answer.text("verdict")?;
        let fits = match verdict.as_str() {
            "COMMITTED" => answer.status == 200,
            "CANCELLED" => answer.status == 409,
            "REJECTED" => (400..500).contains(&answer.status),
            _ => false,
        };
        if !fits {
            return Err(answer.broken("the verdict should be one of the three, with its status"));
        }
    }
    Ok(())
}

async fn is_final(subject: &Subject) -> Result<(), Finding> {
    let queue =
        subject.queue_with(json!({"maxAttempts": 3, "backoff": {"initialMs": 0, "jitter": 0}})).await?;
    let first = leased(subject, &queue).await?;
    let answer = first.fail(subject, "once", true).await?;
    committed(&answer, "WAITING")?;
    let second = lease(subject, &subject.worker(), &queue).await?;
    second.release(subject).await?.is(200)?;
    let late = second.complete(subject, json!("late")).await?;
    cancelled(&late)?;
    let third = lease(subject, &subject.worker(), &queue).await?;
    let done = third.complete(subject, json!("done")).await?;
    committed(&done, "COMPLETED")?;
    first.fail(subject, "once", true).await?.repeats(&answer)?;
    cancelled(&second.complete(subject, json!("late")).await?)?;
    third.complete(subject, json!("done")).await?.repeats(&done)?;
    Ok(())
}

async fn only_committed(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let lost = leased(subject, &queue).await?;
    lost.release(subject).await?.is(200)?;
    cancelled(&lost.complete(subject, json!("lost")).await?)?;
    subject.task(&lost.task).await?.has("state", "WAITING")?.has_no("result")?;
    let held = lease(subject, &subject.worker(), &queue).await?;
    let path = format!("/v1/leases/{}/complete", forged(&held.id));
    rejected(&subject.post(&path, &held.completion(json!("forged")).body).await?, &[403, 404])?;
    subject.task(&held.task).await?.has("state", "LEASED")?.has_no("result")?;
    committed(&held.complete(subject, json!("held")).await?, "COMPLETED")?;
    subject.task(&held.task).await?.has("result", "held")?;
    Ok(())
}

async fn no_authority(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue()).await?;
    held.release(subject).await?.is(200)?.has("state", "WAITING")?;
    for _ in 0..3 {
        cancelled(&held.complete(subject, json!(1)).await?)?;
    }
    let kinds = subject.kinds(&held.task).await?;
    let discarded = kinds.iter().filter(|kind| *kind == "TaskCancelled").count();
    match discarded {
        1 => Ok(()),
        _ => Err(Finding::broken(format!("the history should have one TaskCancelled, and is {kinds:?}"))),
    }
}

async fn causes(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue_with(json!({"leaseMs": 300, "maxAttempts": 2})).await?;
    let expired = leased(subject, &queue).await?;
    let next = lease(subject, &subject.worker(), &queue).await?;
    if next.task != expired.task || next.attempt()? != 2 {
        return Err(next.granted.broken("the task whose lease expired was expected, at attempt 2"));
    }
    cancelled(&expired.complete(subject, json!("superseded")).await?)?;
    subject.ended(&expired.task).await?.has("state", "DEAD")?;
    cancelled(&next.complete(subject, json!("expired")).await?)
}

async fn no_failure(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue_with(json!({"maxAttempts": 1})).await?).await?;
    held.release(subject).await?.is(200)?;
    cancelled(&held.fail(subject, "too late to fail", false).await?)?;
    let shown = subject.task(&held.task).await?;
    shown.has("state", "WAITING")?.has_no("error")?.has("attempt", 1)?;
    Ok(())
}

async fn never_granted(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue()).await?;
    let long = "x".repeat(2_000);
    for id in [forged(&held.id).as_str(), "x", long.as_str()] {
        for (call, body) in
            [("complete", held.completion(json!(1)).body), ("fail", held.failure("no", true).body)]
        {
            let answer = subject.post(&format!("/v1/leases/{id}/{call}"), &body).await?;
            rejected(&answer, &[403, 404])?;
        }
    }
    subject.task(&held.task).await?.has("state", "LEASED")?;
    committed(&held.complete(subject, json!(1)).await?, "COMPLETED")
}

async fn other_task(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let (held, other) = (leased(subject, &queue).await?, leased(subject, &queue).await?);
    for task in [other.task.as_str(), "nope", "01900000-0000-7000-8000-000000000001"] {
        let body = json!({"workerId": held.worker, "taskId": task, "result": 1});
        rejected(&subject.post(&held.path("complete"), &body).await?, &[403, 404])?;
    }
    for task in [&held.task, &other.task] {
        subject.task(task).await?.has("state", "LEASED")?;
    }
    Ok(())
}

async fn malformed(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue()).await?;
    for body in ["", "{", "[]", "{}", r#"{"workerId": 5}"#, r#"{"workerId": ""}"#] {
        rejected(&subject.post_text(&held.path("complete"), body).await?, &[400])?;
    }
    rejected(&subject.post(&held.path("fail"), &json!({"workerId": held.worker})).await?, &[400])?;
    subject.task(&held.task).await?.has("state", "LEASED")?;
    Ok(())
}

async fn conflicting_report(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue()).await?;
    committed(&held.complete(subject, json!(1)).await?, "COMPLETED")?;
    rejected(&held.complete(subject, json!(2)).await?, &[409])?;
    rejected(&held.fail(subject, "no", true).await?, &[409])?;
    subject.task(&held.task).await?.has("state", "COMPLETED")?.has("result", 1)?;
    Ok(())
}
