//! The claim contract: snake_case, one job at a time. A job is a task, a stream is a queue, and a lease token is a
//! lease id.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Json, Problem, Seconds, object};

/// How long a claim waits when it does not say.
pub const DEFAULT_CLAIM_WAIT_MS: u64 = 5_000;

/// A worker asks for a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimJob {
    pub worker_id: String,
    /// In order of priority; at least one, at most 100.
    pub streams: Vec<String>,
    /// How long to wait for a job; more than 60,000 is taken as 60,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(default = 5000))]
    pub max_wait_ms: Option<u64>,
    /// What the worker offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<BTreeMap<String, String>>,
    /// The worker's own name for this request. Repeating it gives the same job again while its lease lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// What was claimed; nothing but `claimed` when the wait is over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimedJob {
    pub claimed: bool,
    /// A UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<String>,
    /// Opaque; to be given back with every call about this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Another one each time the job is put on its stream. Missing when a claim is repeated after the history of the
    /// job was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
    /// How long the lease lives without a heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ttl_seconds: Option<Seconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_interval_seconds: Option<Seconds>,
    /// Counts the job's leases from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub lease_expires_at: Option<Timestamp>,
    /// Higher for every later lease, so that other systems can tell an old worker from a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<u64>,
}

/// The worker is still at it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HeartbeatJob {
    pub worker_id: String,
    pub job_id: String,
    pub lease_token: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobHeartbeat {
    pub ok: bool,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub lease_expires_at: Timestamp,
    /// Whether the worker should stop and report.
    pub should_cancel: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_reason: Option<String>,
}

/// The job is done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CompleteJob {
    pub worker_id: String,
    pub job_id: String,
    pub attempt_id: String,
    pub lease_token: String,
    /// The message that the worker acknowledges when it may. The lease token alone says what the report is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Any JSON, at most 1 MiB; null when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobCompleted {
    pub ok: bool,
    /// The stream message may be acknowledged: what it stood for is durably over.
    pub ack: bool,
}

/// The job failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FailJob {
    pub worker_id: String,
    pub job_id: String,
    pub attempt_id: String,
    pub lease_token: String,
    /// The message that the worker acknowledges when it may. The lease token alone says what the report is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    #[serde(deserialize_with = "object::required")]
    pub error: JobError,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct JobError {
    /// What went wrong, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What went wrong, for people.
    pub message: String,
    /// For the server's log; it is not kept with the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
    /// Whether the worker thinks that another attempt may help; yes when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobFailed {
    pub ok: bool,
    /// The stream message may be acknowledged: the job was requeued or is a dead letter, durably.
    pub ack: bool,
    /// The job waits for another attempt, with a message of its own.
    pub requeued: bool,
    /// The job is a dead letter.
    pub dlq: bool,
    /// When the next attempt may begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub retry_at: Option<Timestamp>,
}

/// A problem as workers of this contract read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimProblem {
    pub ok: bool,
    /// True when the report was discarded because its lease is over: the message was superseded or is finished.
    pub ack: bool,
    #[serde(flatten)]
    pub problem: Problem,
}
