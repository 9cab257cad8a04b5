//! The claim contract: snake_case, one job at a time. A job is a task, a stream is a queue, and a lease token is a
//! lease id.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Json, Problem, Seconds, object};

/// How long a claim waits when it does not say.
pub const DEFAULT_CLAIM_WAIT_MS: u64 = 5_000;

/// A worker asks for a job.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimJob {
    pub worker_id: String,
    /// In order of priority; at least one, at most 100.
    pub streams: Vec<String>,
    /// How long to wait for a job; more than 60,000 is taken as 60,000.
    #[cfg_attr(feature = "openapi", schema(default = 5000))]
    pub max_wait_ms: Option<u64>,
    /// What the worker offers.
    pub properties: Option<BTreeMap<String, String>>,
    /// The worker's own name for this request. Repeating it gives the same job again while its lease lives.
    pub request_id: Option<String>,
}

/// What was claimed; nothing but `claimed` when the wait is over.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimedJob {
    pub claimed: bool,
    /// A UUID.
    pub job_id: Option<String>,
    pub attempt_id: Option<String>,
    /// Opaque; to be given back with every call about this attempt.
    pub lease_token: Option<String>,
    pub stream: Option<String>,
    /// Another one each time the job is put on its stream. Missing when a claim is repeated after the history of the
    /// job was cut off.
    pub message_id: Option<String>,
    pub payload: Option<Json>,
    /// How long the lease lives without a heartbeat.
    pub lease_ttl_seconds: Option<Seconds>,
    pub heartbeat_interval_seconds: Option<Seconds>,
    /// Counts the job's leases from 1.
    pub attempt: Option<u32>,
    pub lease_expires_at: Option<Timestamp>,
    /// Higher for every later lease, so that other systems can tell an old worker from a new one.
    pub fencing_token: Option<u64>,
    /// What an earlier attempt had done when it ended.
    pub partial_progress: Option<Json>,
}

/// The worker is still at it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeartbeatJob {
    pub worker_id: String,
    pub job_id: String,
    pub lease_token: String,
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobHeartbeat {
    pub ok: bool,
    pub lease_expires_at: Timestamp,
    /// Whether the worker should stop and report.
    pub should_cancel: bool,
    pub cancel_reason: Option<String>,
}

/// The job is done.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CompleteJob {
    pub worker_id: String,
    pub job_id: String,
    pub attempt_id: String,
    pub lease_token: String,
    /// The message that the worker acknowledges when it may. The lease token alone says what the report is about.
    pub stream: Option<String>,
    pub message_id: Option<String>,
    /// Any JSON, at most 1 MiB; null when missing.
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
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailJob {
    pub worker_id: String,
    pub job_id: String,
    pub attempt_id: String,
    pub lease_token: String,
    /// The message that the worker acknowledges when it may. The lease token alone says what the report is about.
    pub stream: Option<String>,
    pub message_id: Option<String>,
    #[serde(deserialize_with = "object::required")]
    pub error: JobError,
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobError {
    /// What went wrong, for programs.
    pub code: Option<String>,
    /// What went wrong, for people.
    pub message: String,
    /// For people; the first 32 KiB are kept with the job.
    pub stack: Option<String>,
    /// Whether the worker thinks that another attempt may help; yes when missing.
    pub retryable: Option<bool>,
}

#[serde_with::skip_serializing_none]
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
