//! The workers that were heard of since the coordinator started.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Advisory: it is not recorded and decides nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    pub worker_id: String,
    #[schema(value_type = String, format = DateTime)]
    pub last_heartbeat_at: Timestamp,
    pub active_leases: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerList {
    pub workers: Vec<Worker>,
}
