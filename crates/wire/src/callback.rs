//! The callback contract: how a worker that work was pushed to speaks of its attempt. camelCase; requests may also
//! be in snake_case.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ErrorCategory, Json, object};

/// The worker began.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskStarted {
    pub attempt: u32,
    #[serde(alias = "worker_id")]
    pub worker_id: String,
    /// By the worker's clock; it decides nothing.
    #[serde(alias = "started_at")]
    pub started_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StartAcknowledged {
    pub acknowledged: bool,
    pub server_time: Timestamp,
}

/// The worker is still at it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskHeartbeat {
    pub attempt: u32,
    #[serde(alias = "worker_id")]
    pub worker_id: String,
    /// By the worker's clock; it decides nothing. The time of receipt counts.
    #[serde(alias = "heartbeat_at")]
    pub heartbeat_at: Option<Timestamp>,
    /// From 0 to 100. For people; it decides nothing.
    #[serde(alias = "progress_pct")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 100))]
    pub progress_pct: Option<f64>,
    pub message: Option<String>,
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatAcknowledged {
    pub acknowledged: bool,
    /// Whether the worker should stop and report.
    pub should_cancel: bool,
    pub cancel_reason: Option<String>,
    pub server_time: Timestamp,
    /// A token to use from now on, given when the task may outlive the one at hand.
    pub task_token: Option<String>,
    pub token_expires_at: Option<Timestamp>,
}

/// The worker finished, one way or another.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskCompleted {
    pub attempt: u32,
    #[serde(alias = "worker_id")]
    pub worker_id: String,
    pub outcome: CallbackOutcome,
    /// By the worker's clock; it decides nothing.
    #[serde(alias = "completed_at")]
    pub completed_at: Option<Timestamp>,
    /// With SUCCEEDED: the task's result, any JSON, at most 1 MiB; null when missing.
    pub output: Option<Json>,
    /// With FAILED it must be there, with SUCCEEDED it must not.
    #[serde(default, deserialize_with = "object::optional")]
    pub error: Option<CallbackError>,
    /// An object, usually with `cpuTimeMs`, `peakMemoryBytes`, `ioReadBytes` and `ioWriteBytes`. For people; kept with the
    /// task, unless it has more than 16 KiB.
    pub metrics: Option<Json>,
    /// With CANCELLED. For people; kept with the task.
    #[serde(alias = "cancelled_during_phase")]
    pub cancelled_during_phase: Option<String>,
    /// With CANCELLED or FAILED: what was done so far. The next attempt receives it, unless it has more than 64 KiB.
    #[serde(alias = "partial_progress")]
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

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CallbackError {
    pub category: ErrorCategory,
    /// What went wrong, for people.
    pub message: String,
    /// What went wrong, for programs.
    pub code: Option<String>,
    /// For people; the first 32 KiB are kept with the task.
    #[serde(alias = "stack_trace")]
    pub stack_trace: Option<String>,
    /// Whether the worker thinks that another attempt may help. Without it the category decides.
    pub retryable: Option<bool>,
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CallbackMetrics {
    #[serde(alias = "cpu_time_ms")]
    pub cpu_time_ms: Option<u64>,
    #[serde(alias = "peak_memory_bytes")]
    pub peak_memory_bytes: Option<u64>,
    #[serde(alias = "io_read_bytes")]
    pub io_read_bytes: Option<u64>,
    #[serde(alias = "io_write_bytes")]
    pub io_write_bytes: Option<u64>,
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CompletionAcknowledged {
    pub acknowledged: bool,
    pub final_state: CallbackState,
    pub server_time: Timestamp,
    /// When the next attempt may begin, if there is one.
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
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CallbackProblem {
    /// A stable name, for programs.
    pub error: String,
    /// With `task_already_terminal`.
    pub state: Option<CallbackState>,
    /// With `attempt_mismatch`: the attempt that the task is at, or the next one when none is running.
    pub expected_attempt: Option<u32>,
    pub received_attempt: Option<u32>,
    /// With `outputs_missing`: the first of the outputs that are not in the content store, as `hash/size`.
    pub digests: Option<Vec<String>>,
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
