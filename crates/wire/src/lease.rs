//! Requests for leases, and heartbeats.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Json;
use crate::task_context::with_task_context;

/// A worker asks for work.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaseTasks {
    pub worker_id: String,
    /// Tried in this order; at least one, at most 100.
    pub queues: Vec<String>,
    /// At least 1; more than 100 is taken as 100.
    #[cfg_attr(feature = "openapi", schema(default = 1))]
    pub max_tasks: Option<u64>,
    /// How long to wait for a task; more than 60,000 is taken as 60,000.
    #[cfg_attr(feature = "openapi", schema(default = 10000))]
    pub wait_ms: Option<u64>,
    /// What the worker offers.
    pub properties: Option<BTreeMap<String, String>>,
    /// The worker's own name for this request. Repeating it gives the same leases again while they live.
    pub request_id: Option<String>,
}

/// What was leased; nothing when the wait is over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Leases {
    pub leases: Vec<Lease>,
}

with_task_context! {
    /// The right to report on one attempt until a time.
    #[serde_with::skip_serializing_none]
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(rename_all = "camelCase")]
    pub struct Lease {
        /// Opaque; to be given back with every call about this attempt.
        pub lease_id: String,
        pub task_id: String,
        pub attempt: u32,
        pub queue: String,
        pub payload: Json,
        pub granted_at: Timestamp,
        /// The lease is over when this time has passed without a heartbeat.
        pub expires_at: Timestamp,
        /// How often the worker should send a heartbeat.
        pub heartbeat_interval_ms: u64,
        /// Higher for every later lease, so that other systems can tell an old worker from a new one.
        pub fencing_token: u64,
        pub deadline: Option<Timestamp>,
        pub timeout_ms: Option<u64>,
        /// What an earlier attempt had done when it ended.
        pub partial_progress: Option<Json>,
    }
}

/// The worker is still at it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    pub worker_id: String,
    /// Checked against the lease when given.
    pub task_id: Option<String>,
    /// From 0 to 100. For people; it decides nothing.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 100))]
    pub progress_pct: Option<f64>,
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatAnswer {
    pub expires_at: Timestamp,
    /// Whether the worker should stop and report.
    pub should_cancel: bool,
    pub cancel_reason: Option<String>,
}
