//! Queues: their configuration and their state.

use serde::{Deserialize, Serialize};

use crate::{Backoff, ErrorCategory, PushTarget, object};

/// A queue's configuration, which replaces the one before. What is left out follows the defaults.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueConfig {
    #[cfg_attr(feature = "openapi", schema(default = 3))]
    pub max_attempts: Option<u32>,
    /// How long a lease lives without a heartbeat; one setting with `heartbeatTimeoutMs`. Default 60,000, with a
    /// push target 90,000, for the queue `exec` 300,000.
    pub lease_ms: Option<u64>,
    /// Default 20,000, with a push target and for the queue `exec` 30,000, but at most a third of the lease. At most half of the lease.
    pub heartbeat_interval_ms: Option<u64>,
    /// Another name of `leaseMs`.
    pub heartbeat_timeout_ms: Option<u64>,
    /// How long a worker that is asked to stop may take.
    #[cfg_attr(feature = "openapi", schema(default = 30000))]
    pub cancel_grace_period_ms: Option<u64>,
    #[serde(default, deserialize_with = "object::optional")]
    pub backoff: Option<Backoff>,
    /// When given, only these categories are tried again, whatever the worker says.
    pub retry_on: Option<Vec<ErrorCategory>>,
    /// Most waiting and leased tasks. No limit when missing, for the queue `exec` 10,000.
    pub max_queue_size: Option<u64>,
    /// How long final tasks are kept.
    #[cfg_attr(feature = "openapi", schema(default = 604800000))]
    pub retention_ms: Option<u64>,
    /// Where tasks are pushed to. Without it workers lease them.
    #[serde(default, deserialize_with = "object::optional")]
    pub push: Option<PushTarget>,
}

/// A queue's configuration with every default filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueueSettings {
    pub max_attempts: u32,
    pub lease_ms: u64,
    pub heartbeat_interval_ms: u64,
    pub heartbeat_timeout_ms: u64,
    pub cancel_grace_period_ms: u64,
    pub backoff: Backoff,
    pub retry_on: Option<Vec<ErrorCategory>>,
    pub max_queue_size: Option<u64>,
    pub retention_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    pub name: String,
    /// What holds now.
    pub config: QueueSettings,
    /// What was configured; the rest are defaults.
    pub configured: QueueConfig,
    pub counts: QueueCounts,
    /// How long the oldest task that could be leased has existed.
    pub oldest_waiting_age_ms: Option<u64>,
}

/// How many tasks are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueueCounts {
    pub waiting: u64,
    /// How many of the waiting tasks may not be leased yet.
    pub delayed: u64,
    pub leased: u64,
    pub completed: u64,
    pub failed: u64,
    pub dead: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueueList {
    pub queues: Vec<Queue>,
}
