//! The history of a task, as the ledger recorded it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Json, TaskError};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskHistory {
    /// Oldest first.
    pub events: Vec<HistoryEvent>,
    /// Whether there were older records that are no longer kept or not shown.
    pub truncated: bool,
}

/// One record. Which fields it has depends on its type; payload and result are shown with the task.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HistoryEvent {
    /// The record's place in the ledger.
    pub position: u64,
    pub at: Timestamp,
    /// The kind of event, such as TaskCreated or LeaseGranted.
    #[serde(rename = "type")]
    pub kind: String,
    pub queue: Option<String>,
    pub priority: Option<i32>,
    pub payload_bytes: Option<usize>,
    pub not_before: Option<Timestamp>,
    pub redrive_of: Option<String>,
    pub attempt: Option<u32>,
    /// The lease's number.
    pub fencing_token: Option<u64>,
    pub worker_id: Option<String>,
    pub lease_ms: Option<u64>,
    pub expires_at: Option<Timestamp>,
    /// The contract through which the lease was granted.
    pub contract: Option<String>,
    /// Why a lease expired or was released, or who asked for a cancel.
    pub cause: Option<String>,
    /// Whether the lease that expired was the task's last attempt.
    pub exhausted: Option<bool>,
    pub result_bytes: Option<usize>,
    pub error: Option<TaskError>,
    /// The details of a report.
    pub metrics: Option<Json>,
    pub stack_trace: Option<String>,
    pub cancelled_during_phase: Option<String>,
    pub partial_progress: Option<Json>,
    /// When a failed task is tried again; missing when it is not.
    pub retry_at: Option<Timestamp>,
    pub reason: Option<String>,
    pub reason_detail: Option<String>,
    pub grace_until: Option<Timestamp>,
    /// A further waiter of a merged execution.
    pub operation: Option<String>,
    /// Who asked for a cancel, a redrive or the end of a wait; missing where nobody is authenticated.
    pub by: Option<Actor>,
}

/// The holder of a credential who asked for a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Actor {
    /// The credential: `key`, `token` or `certificate`.
    pub kind: String,
    /// The id of a key, the issuer of a token, or what a certificate is known by.
    pub id: String,
    pub name: String,
}
