//! `claim`: what is asked, and what is answered.

use serde_json::json;

use super::{WAIT_MS, ask, call, claim_next, claimed, nothing_to_claim};
use crate::answer::Spelling;
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S2-1", "S2-16"], "a claim waits up to max_wait_ms for a job", |s| Box::pin(waits(s))),
    Check::new(&["S2-16"], "streams are tried in the order of their priority", |s| Box::pin(order(s))),
    Check::new(&["S2-16"], "a malformed claim is refused", |s| Box::pin(malformed(s))),
    Check::new(&["S2-17"], "a claim that finds no job says claimed: false and nothing else", |s| {
        Box::pin(none(s))
    }),
    Check::new(
        &["S2-10", "S2-17"],
        "a claimed job has job_id, attempt_id and lease_token, in snake_case",
        |s| Box::pin(ids(s)),
    ),
    Check::new(&["S2-18"], "a claimed job has its stream, message_id and payload", |s| Box::pin(message(s))),
    Check::new(&["S2-19"], "a claimed job says how long its lease lives and how often to beat", |s| {
        Box::pin(spans(s))
    }),
    Check::new(&["S2-29"], "leases are short: 60 s unless the queue says otherwise", |s| {
        Box::pin(short_leases(s))
    }),
    Check::new(&["S2-30"], "job_id is a UUID as a string", |s| Box::pin(uuid(s))),
];

async fn waits(subject: &Subject) -> Result<(), Finding> {
    let (stream, worker) = (subject.queue(), subject.worker());
    let streams = [stream.as_str()];
    let submit = async {
        tokio::task::yield_now().await;
        subject.submit(&stream).await
    };
    let (answer, task) = tokio::join!(ask(subject, &worker, &streams, WAIT_MS), submit);
    let (answer, task) = (answer?, task?);
    answer.has("claimed", true)?.has("job_id", task)?;
    let start = std::time::Instant::now();
    ask(subject, &worker, &streams, 500).await?.has("claimed", false)?;
    must(start.elapsed().as_millis() >= 400, || {
        format!("a claim with max_wait_ms 500 ended empty after {} ms", start.elapsed().as_millis())
    })
}

async fn order(subject: &Subject) -> Result<(), Finding> {
    let (high, low) = (subject.queue(), subject.queue());
    let (later, sooner) = (subject.submit(&low).await?, subject.submit(&high).await?);
    let worker = subject.worker();
    let streams = [high.as_str(), low.as_str()];
    let first = ask(subject, &worker, &streams, WAIT_MS).await?;
    first.has("job_id", sooner)?.has("stream", high.as_str())?;
    let second = ask(subject, &worker, &streams, WAIT_MS).await?;
    second.has("job_id", later)?.has("stream", low.as_str())?;
    Ok(())
}

async fn malformed(subject: &Subject) -> Result<(), Finding> {
    let stream = subject.queue();
    for body in [
        json!({}),
        json!([]),
        json!({"worker_id": "w", "streams": []}),
        json!({"worker_id": "w", "streams": stream}),
        json!({"worker_id": "w", "streams": [stream], "max_wait_ms": -1}),
        json!({"worker_id": 5, "streams": [stream]}),
        json!({"worker_id": "", "streams": [stream]}),
    ] {
        call(subject, "claim", &body).await?.is(400)?;
    }
    nothing_to_claim(subject, &stream).await
}

async fn none(subject: &Subject) -> Result<(), Finding> {
    let answer = ask(subject, &subject.worker(), &[&subject.queue()], 0).await?;
    answer.has("claimed", false)?;
    for field in ["job_id", "attempt_id", "lease_token", "stream", "message_id", "payload"] {
        answer.has_no(field)?;
    }
    Ok(())
}

async fn ids(subject: &Subject) -> Result<(), Finding> {
    let stream = subject.queue();
    let job = claimed(subject, &stream).await?;
    job.claimed.is_spelt(Spelling::Snake)?.has_type("application/json")?;
    must(job.token != job.id && job.token != job.attempt, || {
        "the lease_token can be guessed from the ids".into()
    })?;
    nothing_to_claim(subject, &stream).await
}

async fn message(subject: &Subject) -> Result<(), Finding> {
    let stream = subject.queue();
    let payload = json!({"artifact": "s3://x", "list": [1, 2.5, null]});
    subject.submit_with(json!({"queue": stream, "payload": payload})).await?;
    let job = claim_next(subject, &subject.worker(), &stream).await?;
    job.claimed.has("stream", stream.as_str())?.has("payload", payload)?.text("message_id")?;
    Ok(())
}

async fn spans(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue_with(json!({"leaseMs": 30_000, "heartbeatIntervalMs": 5_000})).await?;
    let job = claimed(subject, &queue).await?;
    job.claimed.has("lease_ttl_seconds", 30)?.has("heartbeat_interval_seconds", 5)?;
    Ok(())
}

async fn short_leases(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue()).await?;
    job.claimed.has("lease_ttl_seconds", 60)?.has("heartbeat_interval_seconds", 20)?;
    Ok(())
}

async fn uuid(subject: &Subject) -> Result<(), Finding> {
    let job = claimed(subject, &subject.queue()).await?;
    let groups: Vec<_> = job.id.split('-').map(str::len).collect();
    let hex = job.id.chars().all(|c| c == '-' || c.is_ascii_hexdigit());
    must(hex && groups == [8, 4, 4, 4, 12], || format!("job_id {:?} is no UUID", job.id))
}
