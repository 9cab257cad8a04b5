//! A task to be submitted, with its options.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use wire::{Backoff, Json, SubmitTask};

use crate::setters::setters;
use crate::{Error, ids};

/// Only the queue and the payload are required.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a task is submitted by a client"]
pub struct Submit {
    task: SubmitTask,
}

impl Submit {
    pub fn new(queue: impl Into<String>, payload: &impl Serialize) -> Result<Submit, Error> {
        Ok(Submit { task: SubmitTask::new(queue, Json::from_value(payload)?) })
    }

    setters! {
        /// Lower is sooner.
        priority(priority: i32): task.priority = Some(priority);
        /// How long the task waits before it may be leased.
        delay(delay: Duration): task.delay_ms = Some(ms(delay));
        /// The same key with the same payload and properties finds the same task; with others it is a conflict.
        dedup_key(key: impl Into<String>): task.dedup_key = Some(key.into());
        max_attempts(attempts: u32): task.max_attempts = Some(attempts);
        backoff(backoff: Backoff): task.backoff = Some(backoff);
        /// When the task is dead, or canceled if it is leased, unless it is done.
        deadline(deadline: Timestamp): task.deadline = Some(deadline);
        /// How long one attempt may take.
        timeout(timeout: Duration): task.timeout_ms = Some(ms(timeout));
        /// How long a lease is valid without a heartbeat.
        lease(lease: Duration): task.lease_ms = Some(ms(lease));
        run_id(run_id: impl Into<String>): task.run_id = Some(run_id.into());
        asset_id(asset_id: impl Into<String>): task.asset_id = Some(asset_id.into());
        task_key(task_key: impl Into<String>): task.task_key = Some(task_key.into());
    }

    /// What a worker must offer to get the task.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Submit {
        self.task.properties.get_or_insert_default().insert(name.into(), value.into());
        self
    }

    /// A JSON object for the worker.
    pub fn resources(mut self, resources: &impl Serialize) -> Result<Submit, Error> {
        self.task.resources = Some(Json::from_value(resources)?);
        Ok(self)
    }

    /// Converts to the wire type, with a generated dedup key if there is none: a submit whose answer is lost is sent
    /// again, and without a key there would be two tasks.
    pub(crate) fn into_wire(self) -> Result<SubmitTask, Error> {
        let mut task = self.task;
        if task.dedup_key.is_none() {
            task.dedup_key = Some(format!("sdk-{}", ids::random_id()?));
        }
        Ok(task)
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
