//! The operator's side of a check, through the endpoints of the native contract, for contracts that cannot submit,
//! configure, cancel or show.

use std::time::Duration;

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::{Finding, Subject};

/// How long to wait for a final state: longer than any lease in the checks.
const END_WAIT_MS: u64 = 10_000;
/// The pause before the next look at a task that is not final.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

impl Subject {
    /// A new queue with these settings.
    pub(crate) async fn queue_with(&self, config: Value) -> Result<String, Finding> {
        let queue = self.queue();
        self.configure(&queue, config).await?;
        Ok(queue)
    }

    pub(crate) async fn configure(&self, queue: &str, config: Value) -> Result<(), Finding> {
        let answer = self.put(&format!("/v1/queues/{queue}"), &config).await?;
        if matches!(answer.status, 404 | 405 | 501) {
            let why =
                format!("it needs a queue with {config}, and {} answered {}", answer.call, answer.status);
            return Err(Finding::Skipped(why));
        }
        answer.is(200)?;
        Ok(())
    }

    /// Submits a task with an arbitrary payload.
    pub(crate) async fn submit(&self, queue: &str) -> Result<String, Finding> {
        self.submit_with(json!({"queue": queue, "payload": {"n": 1}})).await
    }

    pub(crate) async fn submit_with(&self, task: Value) -> Result<String, Finding> {
        self.post("/v1/tasks", &task).await?.is(201)?.text("taskId")
    }

    pub(crate) async fn task(&self, task: &str) -> Result<Answer, Finding> {
        let answer = self.get(&format!("/v1/tasks/{task}")).await?;
        answer.is(200)?;
        Ok(answer)
    }

    /// The task once it is final.
    pub(crate) async fn ended(&self, task: &str) -> Result<Answer, Finding> {
        loop {
            let answer = self.get(&format!("/v1/tasks/{task}?waitMs={END_WAIT_MS}")).await?;
            answer.is(200)?;
            if matches!(answer.text("state")?.as_str(), "COMPLETED" | "FAILED" | "DEAD") {
                return Ok(answer);
            }
            // The server does not support the wait, or the wait is over.
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
    }

    pub(crate) async fn cancel(&self, task: &str, reason: &str) -> Result<(), Finding> {
        let answer = self.post(&format!("/v1/tasks/{task}/cancel"), &json!({"reason": reason})).await?;
        answer.is(200)?;
        Ok(())
    }

    /// The types of the records of a task, oldest first.
    pub(crate) async fn kinds(&self, task: &str) -> Result<Vec<String>, Finding> {
        let answer = self.get(&format!("/v1/tasks/{task}/history")).await?;
        let events = answer.is(200)?.get("events").as_array().cloned().unwrap_or_default();
        let kinds = events.iter().map(|event| event["type"].as_str().map(str::to_owned));
        kinds.collect::<Option<_>>().ok_or_else(|| answer.broken("each event should have a `type`"))
    }
}
