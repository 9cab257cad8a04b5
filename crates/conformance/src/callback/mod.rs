//! The callback contract: a task is pushed to a worker in an envelope, and the worker calls back with the token in it.
//! Tasks are submitted, cancelled and looked at by the native contract, and the suite is the push target.

mod cancel;
mod categories;
mod completed;
mod envelope;
mod guard;
mod heartbeat;
mod silence;
mod started;
mod tokens;

use contract_clients::{LeaseRef, callback};
use reqwest::Method;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::target::Mailbox;
use crate::{Check, Finding, Subject};

pub(crate) const THEMES: &[&[Check]] = &[
    envelope::CHECKS,
    tokens::CHECKS,
    started::CHECKS,
    heartbeat::CHECKS,
    completed::CHECKS,
    categories::CHECKS,
    cancel::CHECKS,
    silence::CHECKS,
    guard::CHECKS,
];

const WORKER: &str = "what a worker does with an answer is its own; what it is told is checked";

pub(crate) const UNOBSERVABLE: &[(&str, &str)] = &[
    ("S1-16", WORKER),
    ("S1-21", WORKER),
    ("S1-23", WORKER),
    ("S1-36", WORKER),
    ("S1-56", "a library for workers is no part of a coordinator's answers"),
    ("S1-57", "it names other documents"),
];

const WORKER_ID: &str = "worker-1";

/// A queue whose tasks are pushed to the suite.
struct PushedQueue {
    queue: String,
    mailbox: Mailbox,
}

/// A task that was pushed.
struct Pushed {
    envelope: Answer,
    task: String,
    token: String,
    attempt: u64,
}

impl PushedQueue {
    async fn open(subject: &Subject, config: Value) -> Result<PushedQueue, Finding> {
        let queue = subject.queue();
        let mailbox = subject.target().await?.mailbox(&queue);
        let mut config = config;
        if config["push"].is_null() {
            config["push"] = json!({});
        }
        config["push"]["url"] = json!(mailbox.url);
        let answer = subject.put(&format!("/v1/queues/{queue}"), &config).await?;
        if answer.status != 200 {
            let hint = "if it refuses loopback and private addresses, allow them there (`lessor up \
                        --allow-private-push-targets`), or name a public address with --push-url";
            return Err(answer.broken(format!("200 was expected, and a push target {}; {hint}", mailbox.url)));
        }
        Ok(PushedQueue { queue, mailbox })
    }

    /// Submits a task and waits until it is pushed.
    async fn push(&mut self, subject: &Subject) -> Result<Pushed, Finding> {
        self.push_with(subject, json!({})).await
    }

    async fn push_with(&mut self, subject: &Subject, more: Value) -> Result<Pushed, Finding> {
        let mut task = json!({"queue": self.queue, "payload": {"n": 1}});
        if let (Some(task), Some(more)) = (task.as_object_mut(), more.as_object()) {
            task.extend(more.clone());
        }
        let id = subject.submit_with(task).await?;
        let pushed = self.next().await?;
        pushed.envelope.has("taskId", id)?;
        Ok(pushed)
    }

    async fn next(&mut self) -> Result<Pushed, Finding> {
        let envelope = self.mailbox.next().await?;
        Ok(Pushed {
            task: envelope.text("taskId")?,
            token: envelope.text("taskToken")?,
            attempt: envelope.whole("attempt")?,
            envelope,
        })
    }
}

impl Pushed {
    fn lease_ref(&self) -> LeaseRef {
        let (lease_id, task_id) = (self.token.clone(), self.task.clone());
        let attempt = u32::try_from(self.attempt).unwrap_or(u32::MAX);
        LeaseRef { lease_id, task_id, worker_id: WORKER_ID.to_owned(), attempt }
    }

    fn body(&self, more: Value) -> Value {
        let mut body = callback::heartbeat(&self.lease_ref()).body;
        if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
            body.extend(more.clone());
        }
        body
    }

    fn succeeded(&self, output: Value) -> Value {
        let request = callback::complete(&self.lease_ref(), &output);
        request.with("completedAt", "2025-01-15T10:30:00Z").body
    }

    fn failed(&self, category: &str) -> Value {
        let error = json!({"category": category, "message": "KeyError: 'missing_column'"});
        self.body(json!({"outcome": "FAILED", "error": error}))
    }

    fn cancelled(&self) -> Value {
        self.body(json!({"outcome": "CANCELLED", "cancelledDuringPhase": "processing",
            "partialProgress": {"recordsProcessed": 500_000, "lastCheckpoint": "partition-5"}}))
    }

    /// Each of the three calls, with a valid body.
    fn calls(&self) -> [(&'static str, Value); 3] {
        let body = self.body(json!({}));
        [("started", body.clone()), ("heartbeat", body), ("completed", self.succeeded(json!(1)))]
    }

    async fn started(&self, subject: &Subject) -> Result<Answer, Finding> {
        self.call(subject, "started", &self.body(json!({"startedAt": "2025-01-15T10:00:00Z"}))).await
    }

    async fn beat(&self, subject: &Subject) -> Result<Answer, Finding> {
        self.call(subject, "heartbeat", &self.body(json!({}))).await
    }

    async fn completed(&self, subject: &Subject, body: &Value) -> Result<Answer, Finding> {
        self.call(subject, "completed", body).await
    }

    async fn call(&self, subject: &Subject, what: &str, body: &Value) -> Result<Answer, Finding> {
        self.call_as(subject, &self.task, Some(&format!("Bearer {}", self.token)), what, body).await
    }

    /// Calls the URL in the envelope.
    async fn call_as(
        &self,
        subject: &Subject,
        task: &str,
        authorization: Option<&str>,
        what: &str,
        body: &Value,
    ) -> Result<Answer, Finding> {
        let base = self.envelope.text("callbackBaseUrl")?;
        let url = format!("{}/v1/tasks/{task}/{what}", base.trim_end_matches('/'));
        let request = subject.unscoped(Method::POST, &url).json(body);
        subject
            .send(match authorization {
                Some(authorization) => request.header("authorization", authorization),
                None => request,
            })
            .await
    }
}

fn acknowledged(answer: &Answer) -> Result<(), Finding> {
    answer.is(200)?.has("acknowledged", true)?.time("serverTime")?;
    Ok(())
}

fn is_final(answer: &Answer, state: &str) -> Result<(), Finding> {
    acknowledged(answer)?;
    answer.has("finalState", state)?;
    Ok(())
}

fn refused(answer: &Answer, status: u16, error: &str) -> Result<(), Finding> {
    answer.is(status)?.has("error", error)?.text("message")?;
    Ok(())
}

fn unauthorised(answer: &Answer) -> Result<(), Finding> {
    refused(answer, 401, "invalid_token")
}

fn terminal(answer: &Answer, state: &str) -> Result<(), Finding> {
    refused(answer, 409, "task_already_terminal")?;
    answer.has("state", state)?;
    Ok(())
}

fn mismatch(answer: &Answer, expected: u64, received: u64) -> Result<(), Finding> {
    refused(answer, 409, "attempt_mismatch")?;
    answer.has("expectedAttempt", expected)?.has("receivedAttempt", received)?;
    Ok(())
}
