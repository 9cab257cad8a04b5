//! A task that was assigned to this worker, by a lease or by a dispatch.

use std::time::Duration;

use jiff::Timestamp;
use wire::{Json, Lease, TaskEnvelope};

/// Heartbeats are not sent more often than this, whatever an envelope says.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Assignment {
    pub lease_id: String,
    pub task_id: String,
    pub queue: String,
    pub attempt: u32,
    pub payload: Json,
    pub heartbeat_interval: Duration,
    pub fencing_token: u64,
    pub deadline: Option<Timestamp>,
    pub timeout: Option<Duration>,
    pub run_id: Option<String>,
    pub asset_id: Option<String>,
    pub task_key: Option<String>,
    pub resources: Option<Json>,
}

impl From<Lease> for Assignment {
    fn from(lease: Lease) -> Assignment {
        Assignment {
            lease_id: lease.lease_id,
            task_id: lease.task_id,
            queue: lease.queue,
            attempt: lease.attempt,
            payload: lease.payload,
            heartbeat_interval: Duration::from_millis(lease.heartbeat_interval_ms),
            fencing_token: lease.fencing_token,
            deadline: lease.deadline,
            timeout: lease.timeout_ms.map(Duration::from_millis),
            run_id: lease.run_id,
            asset_id: lease.asset_id,
            task_key: lease.task_key,
            resources: lease.resources,
        }
    }
}

impl From<TaskEnvelope> for Assignment {
    fn from(envelope: TaskEnvelope) -> Assignment {
        let interval = Duration::from_millis(envelope.heartbeat_interval_ms);
        Assignment {
            lease_id: envelope.dispatch_id,
            task_id: envelope.task_id,
            queue: envelope.queue.unwrap_or_else(|| envelope.task_key.clone()),
            attempt: envelope.attempt,
            payload: envelope.payload,
            heartbeat_interval: interval.max(MIN_HEARTBEAT_INTERVAL),
            fencing_token: envelope.fencing_token,
            deadline: envelope.deadline,
            timeout: None,
            run_id: Some(envelope.run_id),
            asset_id: envelope.asset_id,
            task_key: Some(envelope.task_key),
            resources: Some(envelope.resources),
        }
    }
}
