//! A task to be submitted, with its options.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use wire::{Backoff, Json, SubmitTask};

use crate::{Error, ids};

/// Only the queue and the payload are required.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a task is submitted by a client"]
pub struct Submit(SubmitTask);

impl Submit {
    pub fn new(queue: impl Into<String>, payload: &impl Serialize) -> Result<Submit, Error> {
        Ok(Submit(SubmitTask::new(queue, Json::from_value(payload)?)))
    }

    /// Lower is sooner.
    pub fn priority(mut self, priority: i32) -> Submit {
        self.0.priority = Some(priority);
        self
    }

    /// How long the task waits before it may be leased.
    pub fn delay(mut self, delay: Duration) -> Submit {
        self.0.delay_ms = Some(ms(delay));
        self
    }

    /// The same key with the same payload and properties gives the same task; with others it is a conflict.
    pub fn dedup_key(mut self, key: impl Into<String>) -> Submit {
        self.0.dedup_key = Some(key.into());
        self
    }

    pub fn max_attempts(mut self, attempts: u32) -> Submit {
        self.0.max_attempts = Some(attempts);
        self
    }

    pub fn backoff(mut self, backoff: Backoff) -> Submit {
        self.0.backoff = Some(backoff);
        self
    }

    /// What a worker must offer to get the task.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Submit {
        self.0.properties.get_or_insert_default().insert(name.into(), value.into());
        self
    }

    /// When the task is dead, or asked to stop, unless it is done.
    pub fn deadline(mut self, deadline: Timestamp) -> Submit {
        self.0.deadline = Some(deadline);
        self
    }

    /// How long one attempt may take.
    pub fn timeout(mut self, timeout: Duration) -> Submit {
        self.0.timeout_ms = Some(ms(timeout));
        self
    }

    /// How long a lease lives without a heartbeat.
    pub fn lease(mut self, lease: Duration) -> Submit {
        self.0.lease_ms = Some(ms(lease));
        self
    }

    pub fn run_id(mut self, run_id: impl Into<String>) -> Submit {
        self.0.run_id = Some(run_id.into());
        self
    }

    pub fn asset_id(mut self, asset_id: impl Into<String>) -> Submit {
        self.0.asset_id = Some(asset_id.into());
        self
    }

    pub fn task_key(mut self, task_key: impl Into<String>) -> Submit {
        self.0.task_key = Some(task_key.into());
        self
    }

    /// A JSON object for the worker.
    pub fn resources(mut self, resources: &impl Serialize) -> Result<Submit, Error> {
        self.0.resources = Some(Json::from_value(resources)?);
        Ok(self)
    }

    /// As it is sent. A submit whose answer got lost is sent again; without a key the task would then be there twice,
    /// so it gets one.
    pub(crate) fn into_wire(self) -> Result<SubmitTask, Error> {
        let mut task = self.0;
        if task.dedup_key.is_none() {
            task.dedup_key = Some(format!("sdk-{}", ids::random_id()?));
        }
        Ok(task)
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
