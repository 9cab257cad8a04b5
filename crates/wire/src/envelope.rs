//! The envelope that a push target is sent: a task, and where to report on it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Json;
use crate::task_context::with_task_context;

with_task_context! {
    envelope
    /// A task on its way to a worker. The worker reports to `{callbackBaseUrl}/v1/tasks/{taskId}/…` with the token.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(rename_all = "camelCase")]
    pub struct TaskEnvelope {
        pub task_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub queue: Option<String>,
        pub tenant_id: String,
        pub workspace_id: String,
        pub attempt: u32,
        pub enqueued_at: Timestamp,
        pub deadline: Option<Timestamp>,
        pub callback_base_url: String,
        /// Good for this attempt of this task alone.
        pub task_token: String,
        pub token_expires_at: Timestamp,
        pub heartbeat_interval_ms: u64,
        pub heartbeat_timeout_ms: u64,
        pub cancel_grace_period_ms: u64,
        pub payload: Json,
        /// Higher for every later lease, so that other systems can tell an old worker from a new one.
        pub fencing_token: u64,
        /// The same each time this dispatch is sent, so that a target may drop repeats.
        pub dispatch_id: String,
        /// What an earlier attempt had done when it ended.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub partial_progress: Option<Json>,
    }
}
