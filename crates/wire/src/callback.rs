//! The callback contract: how a worker that work was pushed to speaks of its attempt. camelCase; requests may also
//! be in snake_case.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ErrorCategory, Json, object};

/// The worker began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskStarted {
    pub attempt: u32,
    #[serde(alias = "worker_id")]
    pub worker_id: String,
    /// By the worker's clock; it decides nothing.
    #[serde(default, alias = "started_at", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub started_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StartAcknowledged {
    pub acknowledged: bool,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub server_time: Timestamp,
}

/// The worker is still at it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskHeartbeat {
    pub attempt: u32,
    #[serde(alias = "worker_id")]
    pub worker_id: String,
    /// By the worker's clock; it decides nothing. The time of receipt counts.
    #[serde(default, alias = "heartbeat_at", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub heartbeat_at: Option<Timestamp>,
    /// From 0 to 100. For people; it decides nothing.
    #[serde(default, alias = "progress_pct", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 100))]
    pub progress_pct: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatAcknowledged {
    pub acknowledged: bool,
    /// Whether the worker should stop and report.
    pub should_cancel: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_reason: Option<String>,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub server_time: Timestamp,
    /// A token to use from now on, given when the task may outlive the one at hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub token_expires_at: Option<Timestamp>,
}

/// The worker finished, one way or another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskCompleted {
    pub attempt: u32,
    #[serde(alias = "worker_id")]
    pub worker_id: String,
    pub outcome: CallbackOutcome,
    /// By the worker's clock; it decides nothing.
    #[serde(default, alias = "completed_at", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub completed_at: Option<Timestamp>,
    /// With SUCCEEDED: the task's result, any JSON, at most 1 MiB; null when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// With FAILED it must be there, with SUCCEEDED it must not.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub error: Option<CallbackError>,
    /// For the server's log; they are not kept with the task.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub metrics: Option<CallbackMetrics>,
    /// With CANCELLED. For the server's log; it is not kept with the task.
    #[serde(default, alias = "cancelled_during_phase", skip_serializing_if = "Option::is_none")]
    pub cancelled_during_phase: Option<String>,
    /// With CANCELLED. For the server's log; it is not kept with the task.
    #[serde(default, alias = "partial_progress", skip_serializing_if = "Option::is_none")]
    pub partial_progress: Option<Json>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CallbackOutcome {
    Succeeded,
    Failed,
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallbackError {
    pub category: ErrorCategory,
    /// What went wrong, for people.
    pub message: String,
    /// What went wrong, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// For the server's log; it is not kept with the task.
    #[serde(default, alias = "stack_trace", skip_serializing_if = "Option::is_none")]
    pub stack_trace: Option<String>,
    /// Whether the worker thinks that another attempt may help. Without it the category decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CallbackMetrics {
    #[serde(default, alias = "cpu_time_ms", skip_serializing_if = "Option::is_none")]
    pub cpu_time_ms: Option<u64>,
    #[serde(default, alias = "peak_memory_bytes", skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    #[serde(default, alias = "io_read_bytes", skip_serializing_if = "Option::is_none")]
    pub io_read_bytes: Option<u64>,
    #[serde(default, alias = "io_write_bytes", skip_serializing_if = "Option::is_none")]
    pub io_write_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CompletionAcknowledged {
    pub acknowledged: bool,
    pub final_state: CallbackState,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub server_time: Timestamp,
    /// When the next attempt may begin, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub retry_at: Option<Timestamp>,
}

/// What became of a task, in the words of this contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CallbackState {
    Succeeded,
    Failed,
    Cancelled,
    /// The attempt failed, and another one follows.
    RetryWait,
}

/// Why a callback was not accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CallbackProblem {
    /// A stable name, for programs.
    pub error: String,
    /// With `task_already_terminal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<CallbackState>,
    /// With `attempt_mismatch`: the attempt that the task is at, or the next one when none is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_attempt: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_attempt: Option<u32>,
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c28_both_spellings_are_read_but_not_both_at_once() {
        let read = |text: &str| serde_json::from_str::<TaskHeartbeat>(text);
        let camel = read(r#"{"attempt":1,"workerId":"w","progressPct":5}"#).unwrap();
        let snake = read(r#"{"attempt":1,"worker_id":"w","progress_pct":5}"#).unwrap();
        assert_eq!(camel, snake);
        assert!(read(r#"{"attempt":1,"worker_id":"w","workerId":"w"}"#).is_err());
        let written = serde_json::to_string(&snake).unwrap();
        assert_eq!(written, r#"{"attempt":1,"workerId":"w","progressPct":5.0}"#);
    }
}
