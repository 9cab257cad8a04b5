//! Task tokens: good for one attempt of one task, for a time, and for nobody who made one up.

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::json;

use super::{PushedQueue, is_final, unauthorised};
use crate::finding::must;
use crate::{Check, Finding, Subject};

/// How far the clocks of the suite and of the coordinator may differ.
const SKEW: SignedDuration = SignedDuration::from_secs(60);

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S1-6"], "every callback needs its token", |s| Box::pin(needed(s))),
    Check::new(&["S1-7", "S1-10"], "a token is no good for another task", |s| Box::pin(other_task(s))),
    Check::new(&["S1-7"], "a token is no good in another tenant or workspace", |s| Box::pin(other_tenant(s))),
    Check::new(&["S1-10"], "a token is no good for another attempt", |s| Box::pin(other_attempt(s))),
    Check::new(&["S1-8"], "a token lives for an hour", |s| Box::pin(an_hour(s))),
    Check::new(&["S1-8"], "a token never lives for more than two hours", |s| Box::pin(two_hours(s))),
    Check::new(&["S1-11"], "a token covers the deadline of its task", |s| Box::pin(deadline(s))),
    Check::new(&["S1-9"], "a token that was tampered with is refused", |s| Box::pin(tampered(s))),
];

async fn needed(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    let (bare, basic) = (pushed.token.clone(), format!("Basic {}", pushed.token));
    for (what, body) in pushed.calls() {
        for authorization in [None, Some(bare.as_str()), Some(basic.as_str()), Some("Bearer ")] {
            unauthorised(&pushed.call_as(subject, &pushed.task, authorization, what, &body).await?)?;
        }
    }
    is_final(&pushed.completed(subject, &pushed.succeeded(json!(1))).await?, "SUCCEEDED")
}

async fn other_task(subject: &Subject) -> Result<(), Finding> {
    let mut line = PushedQueue::open(subject, json!({})).await?;
    let (one, other) = (line.push(subject).await?, line.push(subject).await?);
    let stolen = format!("Bearer {}", other.token);
    for (what, body) in one.calls() {
        unauthorised(&one.call_as(subject, &one.task, Some(&stolen), what, &body).await?)?;
    }
    subject.task(&one.task).await?.has("state", "LEASED")?;
    Ok(())
}

async fn other_tenant(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    let url = format!("{}/v1/tasks/{}/started", pushed.envelope.text("callbackBaseUrl")?, pushed.task);
    for header in [wire::TENANT_HEADER, wire::WORKSPACE_HEADER] {
        let request =
            subject.unscoped(Method::POST, &url).bearer_auth(&pushed.token).header(header, "somebody-else");
        unauthorised(&subject.send(request.json(&pushed.body(json!({})))).await?)?;
    }
    Ok(())
}

async fn other_attempt(subject: &Subject) -> Result<(), Finding> {
    let mut line = PushedQueue::open(subject, json!({"backoff": {"initialMs": 0, "jitter": 0}})).await?;
    let first = line.push(subject).await?;
    is_final(&first.completed(subject, &first.failed("USER_CODE")).await?, "RETRY_WAIT")?;
    let second = line.next().await?;
    let old = format!("Bearer {}", first.token);
    for (what, body) in second.calls() {
        second.call_as(subject, &second.task, Some(&old), what, &body).await?.is_one_of(&[401, 409])?;
    }
    subject.task(&second.task).await?.has("state", "LEASED")?.has("attempt", 2)?;
    Ok(())
}

async fn lives_until(subject: &Subject, more: serde_json::Value) -> Result<(Timestamp, Timestamp), Finding> {
    let now = Timestamp::now();
    let pushed = PushedQueue::open(subject, json!({})).await?.push_with(subject, more).await?;
    Ok((now, pushed.envelope.time("tokenExpiresAt")?))
}

async fn an_hour(subject: &Subject) -> Result<(), Finding> {
    let (now, until) = lives_until(subject, json!({})).await?;
    let off = (until.duration_since(now) - SignedDuration::from_hours(1)).abs();
    must(off <= SKEW, || format!("at {now} a token was made that lives until {until}"))
}

async fn two_hours(subject: &Subject) -> Result<(), Finding> {
    let (now, until) = lives_until(subject, json!({"deadline": "2099-01-01T00:00:00Z"})).await?;
    let lives = until.duration_since(now);
    must(lives <= SignedDuration::from_hours(2) + SKEW, || {
        format!("at {now} a token was made that lives until {until}")
    })
}

async fn deadline(subject: &Subject) -> Result<(), Finding> {
    let deadline = Timestamp::now() + SignedDuration::from_secs(5_400);
    let (_, until) = lives_until(subject, json!({"deadline": deadline.to_string()})).await?;
    must(until >= deadline - SignedDuration::from_secs(1), || {
        format!("the token of a task with the deadline {deadline} lives until {until}")
    })
}

async fn tampered(subject: &Subject) -> Result<(), Finding> {
    let pushed = PushedQueue::open(subject, json!({})).await?.push(subject).await?;
    let middle = pushed.token.len() / 2;
    let swapped = |at: usize| -> String {
        let swap = |(n, c): (usize, char)| if n == at { if c == 'A' { 'B' } else { 'A' } } else { c };
        pushed.token.chars().enumerate().map(swap).collect()
    };
    // Not the last character: its low bits may mean nothing.
    let tokens =
        [swapped(middle), swapped(pushed.token.len() - 5), "x".to_owned(), format!("{}x", pushed.token)];
    for token in tokens {
        for (what, body) in pushed.calls() {
            let authorization = format!("Bearer {token}");
            unauthorised(&pushed.call_as(subject, &pushed.task, Some(&authorization), what, &body).await?)?;
        }
    }
    subject.task(&pushed.task).await?.has("state", "LEASED")?;
    Ok(())
}
