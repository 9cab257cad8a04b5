//! Reports on attempts, and the coordinator's answer.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ErrorCategory, Json, TaskState, object};

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
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReportCompletion {
    pub worker_id: String,
    /// Checked against the lease when given.
    pub task_id: Option<String>,
    /// Any JSON, at most 1 MiB; null when missing.
    pub result: Option<Json>,
    /// Any JSON, for people; left out if it has more than 16 KiB.
    pub metrics: Option<Json>,
}

/// The attempt failed.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReportFailure {
    pub worker_id: String,
    /// Checked against the lease when given.
    pub task_id: Option<String>,
    /// What went wrong, for people. It is required unless `error` is given.
    pub reason: Option<String>,
    #[cfg_attr(feature = "openapi", schema(default = "USER_CODE"))]
    pub category: Option<ErrorCategory>,
    /// What went wrong, for programs.
    pub code: Option<String>,
    /// Whether the worker thinks that another attempt may help. Without it the category decides.
    pub retryable: Option<bool>,
    /// In place of `reason`, `category`, `code` and `stackTrace`. Where both are given, these fields stand in for what the
    /// object does not say.
    #[serde(default, deserialize_with = "object::optional")]
    pub error: Option<ReportedError>,
    /// Only the first 32 KiB are kept.
    pub stack_trace: Option<String>,
    /// Any JSON, for people; left out if it has more than 16 KiB.
    pub metrics: Option<Json>,
    /// Any JSON that the next attempt receives; left out if it has more than 64 KiB.
    pub partial_progress: Option<Json>,
}

/// An error in the shape in which many programs log it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReportedError {
    #[serde(default)]
    pub message: String,
    pub category: Option<ErrorCategory>,
    pub code: Option<String>,
    pub stack: Option<String>,
}

/// The report was COMMITTED, now or earlier.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReportAnswer {
    pub verdict: Verdict,
    /// What became of the task.
    pub state: TaskState,
    /// When the task may be leased again, if it waits.
    pub retry_at: Option<Timestamp>,
}

/// The worker gives the lease back, at no cost to the task's attempts.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseLease {
    pub worker_id: String,
    /// Checked against the lease when given.
    pub task_id: Option<String>,
}

/// The lease is over, by this call or before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Released {
    pub state: TaskState,
}
