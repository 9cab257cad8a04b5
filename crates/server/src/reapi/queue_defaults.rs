//! The defaults of the queue in which remote executions wait: long leases, because actions take minutes, and a bound.

use authority::{QueueConfig, QueueDefaults};
use execution::EXECUTION_QUEUE;

const LEASE_MS: u64 = 300_000;
const HEARTBEAT_INTERVAL_MS: u64 = 30_000;
const MAX_QUEUE_SIZE: u64 = 10_000;

/// The defaults that the server's adapters rely on, for [`coordinator::Options::queue_defaults`].
pub fn queue_defaults() -> QueueDefaults {
    QueueDefaults::default().with(
        EXECUTION_QUEUE,
        QueueConfig {
            lease_ms: Some(LEASE_MS),
            heartbeat_interval_ms: Some(HEARTBEAT_INTERVAL_MS),
            max_queue_size: Some(MAX_QUEUE_SIZE),
            ..QueueConfig::default()
        },
    )
}
