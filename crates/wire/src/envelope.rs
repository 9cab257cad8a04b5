//! What a push target is sent: a task, and how to speak of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Json;

/// A task on its way to a worker. The worker reports to `{callbackBaseUrl}/v1/tasks/{taskId}/…` with the token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskEnvelope {
    pub task_id: String,
    /// `run_{taskId}` when the submitter gave none.
    pub run_id: String,
    pub asset_id: Option<String>,
    /// The queue's name when the submitter gave none.
    pub task_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    pub tenant_id: String,
    pub workspace_id: String,
    pub attempt: u32,
    /// An empty object when the submitter gave none.
    pub resources: Json,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub enqueued_at: Timestamp,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub deadline: Option<Timestamp>,
    pub callback_base_url: String,
    /// Good for this attempt of this task alone.
    pub task_token: String,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub token_expires_at: Timestamp,
    pub heartbeat_interval_ms: u64,
    pub heartbeat_timeout_ms: u64,
    pub cancel_grace_period_ms: u64,
    pub payload: Json,
    /// Higher for every later lease, so that other systems can tell an old worker from a new one.
    pub fencing_token: u64,
    /// The same each time this dispatch is sent, so that a target may drop repeats.
    pub dispatch_id: String,
}
