//! The claim contract: `/internal/worker/…`, in snake_case, one job at a time. Jobs are submitted, and looked at, by the
//! native contract.

mod claims;
mod fail;
mod guard;
mod heartbeat;
mod lifecycle;

use contract_clients::{HttpRequest, LeaseRef, claim};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::{Check, Finding, Subject};

pub(crate) const THEMES: &[&[Check]] =
    &[claims::CHECKS, heartbeat::CHECKS, lifecycle::CHECKS, fail::CHECKS, guard::CHECKS];

pub(crate) const UNOBSERVABLE: &[(&str, &str)] = &[
    ("S2-3", "that nothing is told before it is durable shows only when the coordinator is killed"),
    ("S2-8", "the messages of a stream outside of the coordinator are not part of its HTTP answers"),
];

/// How long a claim waits for an expected job.
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
    fn lease_ref(&self) -> LeaseRef {
        let (lease_id, task_id, worker_id) = (self.token.clone(), self.id.clone(), self.worker.clone());
        // The attempt id of a job replaces the attempt.
        LeaseRef { lease_id, task_id, worker_id, attempt: 0 }
    }

    fn heartbeat(&self) -> Value {
        claim::heartbeat(&self.lease_ref()).body
    }

    fn completion(&self, result: Value) -> Value {
        self.report(claim::complete(&self.lease_ref(), &result))
    }

    fn failure(&self, error: Value) -> Value {
        self.report(claim::report_on(&self.lease_ref(), "fail").with("error", error))
    }

    /// The body of a report, with the ids that the coordinator gave.
    fn report(&self, request: HttpRequest) -> Value {
        let (stream, message_id) = (self.claimed.get("stream"), self.claimed.get("message_id"));
        request
            .with("attempt_id", self.attempt.as_str())
            .with("stream", stream.clone())
            .with("message_id", message_id.clone())
            .body
    }

    async fn beat(&self, subject: &Subject) -> Result<Answer, Finding> {
        call(subject, "heartbeat", &self.heartbeat()).await
    }

    async fn complete(&self, subject: &Subject, result: Value) -> Result<Answer, Finding> {
        call(subject, "complete", &self.completion(result)).await
    }

    async fn fail(&self, subject: &Subject, retryable: bool) -> Result<Answer, Finding> {
        call(subject, "fail", &self.failure(error(retryable))).await
    }
}

fn error(retryable: bool) -> Value {
    json!({"code": "E1", "message": "bad luck", "stack": "at line 1", "retryable": retryable})
}

/// The body with another value of one field.
fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

async fn call(subject: &Subject, what: &str, body: &Value) -> Result<Answer, Finding> {
    subject.post(&claim::path(what), body).await
}

/// Asks for one job of these streams.
async fn ask(subject: &Subject, worker: &str, streams: &[&str], max_wait_ms: u64) -> Result<Answer, Finding> {
    let answer = subject.call(claim::claim(worker, streams, max_wait_ms, None)).await?;
    answer.is(200)?;
    Ok(answer)
}

/// Claims the next job of a stream; fails if there is none.
async fn claim_next(subject: &Subject, worker: &str, stream: &str) -> Result<Job, Finding> {
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

/// Submits a job and claims it for a new worker.
async fn claimed(subject: &Subject, stream: &str) -> Result<Job, Finding> {
    let task = subject.submit(stream).await?;
    let job = claim_next(subject, &subject.worker(), stream).await?;
    job.claimed.has("job_id", task)?;
    Ok(job)
}

/// Expects that no job can be claimed now.
async fn nothing_to_claim(subject: &Subject, stream: &str) -> Result<(), Finding> {
    ask(subject, &subject.worker(), &[stream], 0).await?.has("claimed", false)?.has_no("job_id")?;
    Ok(())
}

fn accepted(answer: &Answer) -> Result<(), Finding> {
    answer.is(200)?.has("ok", true)?.has("ack", true)?;
    Ok(())
}

/// The lease is over, so the message may be acknowledged, but nothing was taken.
fn too_late(answer: &Answer) -> Result<(), Finding> {
    answer.is(409)?.has("ok", false)?.has("ack", true)?;
    Ok(())
}

fn refused(answer: &Answer, statuses: &[u16]) -> Result<(), Finding> {
    answer.is_one_of(statuses)?.has("ok", false)?.has("ack", false)?;
    Ok(())
}
