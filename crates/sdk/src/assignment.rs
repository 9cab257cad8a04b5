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
            heartbeat_interval: heartbeat_interval(lease.heartbeat_interval_ms),
            fencing_token: lease.fencing_token,
            deadline: lease.deadline,
            timeout: lease.timeout_ms.map(Duration::from_millis),
            partial_progress: lease.partial_progress,
        }
    }
}

impl From<TaskEnvelope> for Assignment {
    fn from(mut envelope: TaskEnvelope) -> Assignment {
        let context = envelope.take_context();
        Assignment {
            lease_id: envelope.dispatch_id,
            task_id: envelope.task_id,
            queue: envelope.queue.or_else(|| context.task_key.clone()).unwrap_or_default(),
            attempt: envelope.attempt,
            payload: envelope.payload,
            heartbeat_interval: heartbeat_interval(envelope.heartbeat_interval_ms),
            fencing_token: envelope.fencing_token,
            deadline: envelope.deadline,
            timeout: None,
            context,
            partial_progress: envelope.partial_progress,
        }
    }
}

fn heartbeat_interval(ms: u64) -> Duration {
    Duration::from_millis(ms).max(MIN_HEARTBEAT_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lease with an interval of zero had its worker send heartbeats without a pause.
    #[test]
    fn a_lease_without_an_interval_gets_heartbeats_at_a_distance() {
        let lease = r#"{"leaseId":"l","taskId":"t","attempt":1,"queue":"q","payload":1,"fencingToken":1,
            "grantedAt":"2026-01-31T12:00:00Z","expiresAt":"2026-01-31T12:01:00Z","heartbeatIntervalMs":0}"#;
        let lease: Lease = serde_json::from_str(lease).unwrap();
        assert_eq!(Assignment::from(lease).heartbeat_interval, MIN_HEARTBEAT_INTERVAL);
    }
}
