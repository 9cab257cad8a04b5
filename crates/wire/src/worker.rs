//! The workers that the coordinator has heard from since it started.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Advisory: it is not recorded and decides nothing.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    pub worker_id: String,
    pub last_heartbeat_at: Timestamp,
    pub active_leases: usize,
    /// The operator has drained the worker: it is granted nothing until it is resumed.
    #[serde(default)]
    pub drained: bool,
    /// The operator has asked the worker to stop, and it has not left yet.
    #[serde(default)]
    pub stopping: bool,
    /// What the worker said of itself, if it is registered with the worker service over gRPC.
    pub registration: Option<WorkerRegistration>,
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkerRegistration {
    pub registered_at: Timestamp,
    pub session_id: Option<String>,
    /// What the worker offers.
    pub properties: BTreeMap<String, String>,
    pub max_concurrent_executions: u32,
    pub cpu_cores: f64,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    pub state: WorkerState,
    pub active_tasks: u64,
    pub total_completed: u64,
    pub total_failed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WorkerState {
    Idle,
    Busy,
    /// Preparing to shut down: it is offered nothing more.
    Draining,
}

impl WorkerState {
    pub fn name(self) -> &'static str {
        match self {
            WorkerState::Idle => "IDLE",
            WorkerState::Busy => "BUSY",
            WorkerState::Draining => "DRAINING",
        }
    }
}

/// An order of the operator for a worker. It holds in all workspaces of the tenant.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OrderWorker {
    /// The worker's tenant; the tenant of the call when missing.
    pub tenant: Option<String>,
    /// How long to wait until the worker holds no lease and, if it is to stop, has left; at most 60,000.
    pub wait_ms: Option<u64>,
}

/// The instances of remote execution that have had executions since the start, without the unnamed one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct InstanceList {
    pub instances: Vec<String>,
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WaitInstances {
    /// How many instances the caller knows. The answer waits as long as there are exactly so many.
    pub known: Option<usize>,
    /// How long to wait, at most 60,000.
    pub wait_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkerList {
    pub workers: Vec<Worker>,
}
