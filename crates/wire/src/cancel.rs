//! Asking a task to stop.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelTask {
    /// Told to the worker and shown with the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(default = "user_requested")]
    pub reason: Option<String>,
}
