//! A task as the API shows it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Json;
use crate::task_context::with_task_context;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskState {
    Waiting,
    Leased,
    Completed,
    Failed,
    Dead,
}

impl TaskState {
    pub const ALL: [TaskState; 5] =
        [TaskState::Waiting, TaskState::Leased, TaskState::Completed, TaskState::Failed, TaskState::Dead];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            TaskState::Waiting => "WAITING",
            TaskState::Leased => "LEASED",
            TaskState::Completed => "COMPLETED",
            TaskState::Failed => "FAILED",
            TaskState::Dead => "DEAD",
        }
    }

    pub fn from_name(name: &str) -> Option<TaskState> {
        TaskState::ALL.into_iter().find(|state| state.name() == name)
    }

    pub fn is_final(self) -> bool {
        matches!(self, TaskState::Completed | TaskState::Failed | TaskState::Dead)
    }
}

/// What kind of error a worker reports. By default USER_CODE, INFRASTRUCTURE and TIMEOUT are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCategory {
    UserCode,
    DataQuality,
    Infrastructure,
    Configuration,
    Timeout,
    Cancelled,
}

with_task_context! {
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(rename_all = "camelCase")]
    pub struct Task {
        pub task_id: String,
        pub queue: String,
        pub state: TaskState,
        /// Why the task is DEAD (CANCELLED, CANCEL_TIMEOUT, HEARTBEAT_TIMEOUT, DEADLINE, KILLED) or, when it is FAILED,
        /// the category of its error.
        pub reason: Option<String>,
        /// In the words of whoever asked for the end, or of the worker that failed.
        pub reason_detail: Option<String>,
        /// How often the task was leased.
        pub attempt: u32,
        /// How many of these leases count against `maxAttempts`: all but those that were given back.
        pub used_attempts: u32,
        /// How many attempts the task has.
        pub max_attempts: u32,
        pub priority: i32,
        pub payload: Json,
        /// What the worker reported with its completion.
        pub result: Option<Json>,
        /// How the newest failed attempt failed; nothing once the task is COMPLETED.
        pub error: Option<TaskError>,
        /// The metrics of the newest report.
        pub metrics: Option<Json>,
        /// The newest partial progress of a failed attempt; the next attempt receives it.
        pub partial_progress: Option<Json>,
        /// Where an attempt was when it stopped because of a cancel.
        pub cancelled_during_phase: Option<String>,
        pub properties: BTreeMap<String, String>,
        pub dedup_key: Option<String>,
        pub created_at: Timestamp,
        /// A waiting task is not leased before this time.
        pub not_before: Option<Timestamp>,
        pub deadline: Option<Timestamp>,
        pub timeout_ms: Option<u64>,
        pub finished_at: Option<Timestamp>,
        /// Who works on it, while it is LEASED.
        pub lease: Option<TaskLease>,
        /// Set once the task was asked to stop.
        pub cancel_requested: Option<CancelRequested>,
        /// The dead letter that this task does again.
        pub redrive_of: Option<String>,
        /// What its worker said last. It is not recorded and does not outlive a restart.
        pub progress: Option<Progress>,
    }
}

/// How an attempt failed, in the worker's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskError {
    pub category: ErrorCategory,
    pub code: Option<String>,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_trace: Option<String>,
}

/// The current lease. Its id is known to its worker alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskLease {
    pub worker_id: String,
    pub attempt: u32,
    pub granted_at: Timestamp,
    pub expires_at: Timestamp,
    /// Who really began the attempt, where a contract says so.
    pub started_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CancelRequested {
    pub reason: String,
    pub at: Timestamp,
    /// When the task is dead, whatever its worker does.
    pub grace_until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    pub progress_pct: Option<f64>,
    pub message: Option<String>,
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_written_as_it_is_named() {
        for state in TaskState::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.name()));
            assert_eq!(TaskState::from_name(state.name()), Some(state));
        }
    }
}
