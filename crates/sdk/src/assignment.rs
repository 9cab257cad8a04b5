//! A task that was assigned to this worker, by a lease or by a dispatch.

use std::time::Duration;

use jiff::Timestamp;
use wire::{Json, Lease, TaskContext, TaskEnvelope};

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
    pub context: TaskContext,
    pub partial_progress: Option<Json>,
}

impl From<Lease> for Assignment {
    fn from(mut lease: Lease) -> Assignment {
        Assignment {
            context: lease.take_context(),
            lease_id: lease.lease_id,
            task_id: lease.task_id,
            queue: lease.queue,
            attempt: lease.attempt,
            payload: lease.payload,
            heartbeat_interval: Duration::from_millis(lease.heartbeat_interval_ms),
            fencing_token: lease.fencing_token,
            deadline: lease.deadline,
            timeout: lease.timeout_ms.map(Duration::from_millis),
            partial_progress: lease.partial_progress,
        }
    }
}

impl From<TaskEnvelope> for Assignment {
    fn from(mut envelope: TaskEnvelope) -> Assignment {
        let interval = Duration::from_millis(envelope.heartbeat_interval_ms);
        let context = envelope.take_context();
        Assignment {
            lease_id: envelope.dispatch_id,
            task_id: envelope.task_id,
            queue: envelope.queue.or_else(|| context.task_key.clone()).unwrap_or_default(),
            attempt: envelope.attempt,
            payload: envelope.payload,
            heartbeat_interval: interval.max(MIN_HEARTBEAT_INTERVAL),
            fencing_token: envelope.fencing_token,
            deadline: envelope.deadline,
            timeout: None,
            context,
            partial_progress: envelope.partial_progress,
        }
    }
}
