//! Workers that act for others, or without a lease: nothing that they say is taken.

use serde_json::json;

use super::{as_tenant, committed, leased, rejected};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S0-1"], "a worker without a lease decides nothing", |s| Box::pin(no_lease(s))),
    Check::new(&["S0-2"], "a worker that breaks the contract harms no other", |s| Box::pin(harms_nobody(s))),
    Check::new(&["S0-27"], "a lease id is no good for another worker", |s| Box::pin(other_worker(s))),
    Check::new(&["S0-27"], "a lease id is no good in another tenant", |s| Box::pin(other_tenant(s))),
    Check::new(&["S0-27"], "reports in the wrong order settle on the first", |s| Box::pin(wrong_order(s))),
];

async fn no_lease(subject: &Subject) -> Result<(), Finding> {
    let task = subject.submit(&subject.queue()).await?;
    for call in ["complete", "fail", "release"] {
        let mut body = json!({"workerId": subject.worker(), "taskId": task});
        if call == "fail" {
            body["reason"] = json!("I say so");
        }
        let answer = subject.post(&format!("/v1/leases/{task}/{call}"), &body).await?;
        rejected(&answer, &[403, 404])?;
    }
    subject.task(&task).await?.has("state", "WAITING")?.has("attempt", 0)?;
    Ok(())
}

async fn harms_nobody(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue();
    let (good, bad) = (leased(subject, &queue).await?, leased(subject, &queue).await?);
    // The bad one reports the good one's task with its own lease, and its own twice with two stories.
    let body = json!({"workerId": bad.worker, "taskId": good.task, "result": "stolen"});
    rejected(&subject.post(&bad.path("complete"), &body).await?, &[403, 404])?;
    committed(&bad.complete(subject, json!(1)).await?, "COMPLETED")?;
    rejected(&bad.complete(subject, json!(2)).await?, &[409])?;
    good.beat(subject).await?.is(200)?;
    committed(&good.complete(subject, json!("good")).await?, "COMPLETED")?;
    subject.task(&good.task).await?.has("result", "good")?;
    Ok(())
}

async fn other_worker(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue()).await?;
    let thief = subject.worker();
    let body = json!({"workerId": thief, "taskId": held.task, "result": "stolen"});
    rejected(&subject.post(&held.path("complete"), &body).await?, &[403])?;
    subject.post(&held.path("heartbeat"), &json!({"workerId": thief})).await?.is_one_of(&[403, 410])?;
    committed(&held.complete(subject, json!(1)).await?, "COMPLETED")
}

async fn other_tenant(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue()).await?;
    let body = held.completion(json!("stolen")).body;
    let answer = as_tenant(subject, &subject.name("tenant"), &held.path("complete"), &body).await?;
    rejected(&answer, &[403, 404])?;
    committed(&held.complete(subject, json!(1)).await?, "COMPLETED")
}

async fn wrong_order(subject: &Subject) -> Result<(), Finding> {
    let held = leased(subject, &subject.queue()).await?;
    committed(&held.fail(subject, "no", false).await?, "FAILED")?;
    held.beat(subject).await?.is(410)?;
    rejected(&held.complete(subject, json!(1)).await?, &[409])?;
    subject.task(&held.task).await?.has("state", "FAILED")?;
    Ok(())
}
