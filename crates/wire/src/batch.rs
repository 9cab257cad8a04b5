//! Submitting many tasks in one go; each is accepted or refused on its own.

use serde::{Deserialize, Serialize};

use crate::{Problem, SubmitTask, TaskState};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubmitBatch {
    /// At most 1,000.
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub tasks: Vec<SubmitTask>,
}

/// One answer for each task, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SubmittedBatch {
    pub tasks: Vec<BatchItem>,
}

/// Either a task, created now or found by its dedup key, or why there is none.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BatchItem {
    pub task_id: Option<String>,
    pub state: Option<TaskState>,
    pub error: Option<Problem>,
}
