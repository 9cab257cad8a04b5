//! The operator's side, by the native contract's endpoints: what has to be done around a worker's contract that has no
//! words for it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::{Finding, Subject};

/// How long to wait for a task's end: longer than any lease here takes to run out.
const END_WAIT_MS: u64 = 10_000;
/// The pause before looking again at a task that has not ended.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

impl Subject {
    /// A new queue with these settings.
    pub(crate) async fn queue_with(&self, config: Value) -> Result<String, Finding> {
        let queue = self.queue();
        self.configure(&queue, config).await?;
        Ok(queue)
    }

    pub(crate) async fn configure(&self, queue: &str, config: Value) -> Result<(), Finding> {
        let told = self.put(&format!("/v1/queues/{queue}"), &config).await?;
        if matches!(told.status, 404 | 405 | 501) {
            let why = format!("it needs a queue with {config}, and {} answered {}", told.call, told.status);
            return Err(Finding::Skipped(why));
        }
        told.is(200)?;
        Ok(())
    }

    /// Submits a task with a payload that means nothing.
    pub(crate) async fn submit(&self, queue: &str) -> Result<String, Finding> {
        self.submit_with(json!({"queue": queue, "payload": {"n": 1}})).await
    }

    pub(crate) async fn submit_with(&self, task: Value) -> Result<String, Finding> {
        self.post("/v1/tasks", &task).await?.is(201)?.text("taskId")
    }

    pub(crate) async fn task(&self, task: &str) -> Result<Answer, Finding> {
        let told = self.get(&format!("/v1/tasks/{task}")).await?;
        told.is(200)?;
        Ok(told)
    }

    /// The task once it is final.
    pub(crate) async fn ended(&self, task: &str) -> Result<Answer, Finding> {
        loop {
            let told = self.get(&format!("/v1/tasks/{task}?waitMs={END_WAIT_MS}")).await?;
            told.is(200)?;
            if matches!(told.text("state")?.as_str(), "COMPLETED" | "FAILED" | "DEAD") {
                return Ok(told);
            }
            // Reached at once only where the wait is not supported.
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
    }

    pub(crate) async fn cancel(&self, task: &str, reason: &str) -> Result<(), Finding> {
        let told = self.post(&format!("/v1/tasks/{task}/cancel"), &json!({"reason": reason})).await?;
        told.is(200)?;
        Ok(())
    }

    /// The kinds of a task's records, oldest first.
    pub(crate) async fn kinds(&self, task: &str) -> Result<Vec<String>, Finding> {
        let told = self.get(&format!("/v1/tasks/{task}/history")).await?;
        let events = told.is(200)?.get("events").as_array().cloned().unwrap_or_default();
        let kinds = events.iter().map(|event| event["type"].as_str().map(str::to_owned));
        kinds.collect::<Option<_>>().ok_or_else(|| told.broken("each event should have a `type`"))
    }
}
