//! Reports on attempts, and the coordinator's answer.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ErrorCategory, Json, TaskState};

/// The answer to a report; final for its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// The report is accepted and the attempt is over.
    Committed,
    /// The attempt had no authority any more; its result was thrown away.
    Cancelled,
    /// The report itself is invalid. Nothing changed, and repeating it will not help.
    Rejected,
}

/// The attempt is done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportCompletion {
    pub worker_id: String,
    /// Checked against the lease when given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Any JSON, at most 1 MiB; null when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
}

/// The attempt failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportFailure {
    pub worker_id: String,
    /// Checked against the lease when given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// What went wrong, for people.
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(default = "USER_CODE"))]
    pub category: Option<ErrorCategory>,
    /// What went wrong, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Whether the worker thinks that another attempt may help. Without it the category decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

/// The report was COMMITTED, now or earlier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReportAnswer {
    pub verdict: Verdict,
    /// What became of the task.
    pub state: TaskState,
    /// When the task may be leased again, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub retry_at: Option<Timestamp>,
}

/// The worker gives the lease back, at no cost to the task's attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseLease {
    pub worker_id: String,
    /// Checked against the lease when given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
}

/// The lease is over, by this call or before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Released {
    pub state: TaskState,
}
