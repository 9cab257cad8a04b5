//! Requests the cancellation of a task.

use serde::{Deserialize, Serialize};

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelTask {
    /// Told to the worker and shown with the task.
    #[cfg_attr(feature = "openapi", schema(default = "user_requested"))]
    pub reason: Option<String>,
}
