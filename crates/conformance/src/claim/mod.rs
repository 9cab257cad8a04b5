//! The claim contract: `/internal/worker/…`, in snake_case, one job at a time. Jobs are submitted, and looked at, by the
//! native contract.

mod claims;
mod fail;
mod guard;
mod heartbeat;
mod lifecycle;

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::{Check, Finding, Subject};

pub const THEMES: &[&[Check]] =
    &[claims::CHECKS, heartbeat::CHECKS, lifecycle::CHECKS, fail::CHECKS, guard::CHECKS];

pub const UNOBSERVABLE: &[(&str, &str)] = &[
    ("S2-3", "that nothing is told before it is durable shows only when the coordinator is killed"),
    ("S2-8", "the messages of a stream outside of the coordinator are not part of its HTTP answers"),
];

/// How long a claim waits for a job that must come.
const WAIT_MS: u64 = 10_000;

/// A job as it was claimed by a worker.
struct Job {
    id: String,
    attempt: String,
    token: String,
    worker: String,
    claimed: Answer,
}

impl Job {
    fn heartbeat(&self) -> Value {
        json!({"worker_id": self.worker, "job_id": self.id, "lease_token": self.token})
    }

    fn report(&self) -> Value {
        json!({"worker_id": self.worker, "job_id": self.id, "attempt_id": self.attempt, "lease_token": self.token,
            "stream": self.claimed.get("stream"), "message_id": self.claimed.get("message_id")})
    }

    fn completion(&self, result: Value) -> Value {
        with(self.report(), "result", result)
    }

    fn failure(&self, retryable: bool) -> Value {
        let error =
            json!({"code": "E1", "message": "bad luck", "stack": "at line 1", "retryable": retryable});
        with(self.report(), "error", error)
    }

    async fn beat(&self, subject: &Subject) -> Result<Answer, Finding> {
        call(subject, "heartbeat", &self.heartbeat()).await
    }

    async fn complete(&self, subject: &Subject, result: Value) -> Result<Answer, Finding> {
        call(subject, "complete", &self.completion(result)).await
    }

    async fn fail(&self, subject: &Subject, retryable: bool) -> Result<Answer, Finding> {
        call(subject, "fail", &self.failure(retryable)).await
    }
}

/// The body with another value of one field.
fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

async fn call(subject: &Subject, what: &str, body: &Value) -> Result<Answer, Finding> {
    subject.post(&format!("/internal/worker/{what}"), body).await
}

/// Asks for one job of these streams, waiting so long.
async fn ask(subject: &Subject, worker: &str, streams: &[&str], max_wait_ms: u64) -> Result<Answer, Finding> {
    let body = json!({"worker_id": worker, "streams": streams, "max_wait_ms": max_wait_ms});
    let told = call(subject, "claim", &body).await?;
    told.is(200)?;
    Ok(told)
}

/// Claims the next job of a stream, which must come.
async fn claim(subject: &Subject, worker: &str, stream: &str) -> Result<Job, Finding> {
    let claimed = ask(subject, worker, &[stream], WAIT_MS).await?;
    claimed.has("claimed", true)?;
    Ok(Job {
        id: claimed.text("job_id")?,
        attempt: claimed.text("attempt_id")?,
        token: claimed.text("lease_token")?,
        worker: worker.to_owned(),
        claimed,
    })
}

/// A new job of a stream, claimed by a worker of its own.
async fn claimed(subject: &Subject, stream: &str) -> Result<Job, Finding> {
    let task = subject.submit(stream).await?;
    let job = claim(subject, &subject.worker(), stream).await?;
    job.claimed.has("job_id", task)?;
    Ok(job)
}

/// There is no job to claim now.
async fn nothing_to_claim(subject: &Subject, stream: &str) -> Result<(), Finding> {
    ask(subject, &subject.worker(), &[stream], 0).await?.has("claimed", false)?.has_no("job_id")?;
    Ok(())
}

fn accepted(told: &Answer) -> Result<(), Finding> {
    told.is(200)?.has("ok", true)?.has("ack", true)?;
    Ok(())
}

/// The lease is over, so the message may be acknowledged, but nothing was taken.
fn too_late(told: &Answer) -> Result<(), Finding> {
    told.is(409)?.has("ok", false)?.has("ack", true)?;
    Ok(())
}

fn refused(told: &Answer, statuses: &[u16]) -> Result<(), Finding> {
    told.is_one_of(statuses)?.has("ok", false)?.has("ack", false)?;
    Ok(())
}
