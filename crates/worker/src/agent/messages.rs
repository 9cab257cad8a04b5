//! Builds the agent's messages about its leases.

use std::sync::Arc;

use wire::grpc::{LeaseHeartbeat, TaskStatus, UpdateTaskStatusRequest};

pub(super) fn heartbeat(lease_id: &Arc<str>) -> LeaseHeartbeat {
    LeaseHeartbeat { lease_id: lease_id.to_string(), ..LeaseHeartbeat::default() }
}

pub(super) fn start(lease_id: &Arc<str>, task_id: &str) -> UpdateTaskStatusRequest {
    UpdateTaskStatusRequest {
        lease_id: lease_id.to_string(),
        task_id: task_id.to_owned(),
        status: TaskStatus::Executing.into(),
        ..UpdateTaskStatusRequest::default()
    }
}

pub(super) fn release(lease_id: &Arc<str>) -> UpdateTaskStatusRequest {
    UpdateTaskStatusRequest { lease_id: lease_id.to_string(), release: true, ..Default::default() }
}
