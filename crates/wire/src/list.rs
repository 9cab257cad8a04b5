//! Reads tasks: one, with a wait, or a page of them.

use serde::{Deserialize, Serialize};

use crate::{Task, TaskState};

#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct WaitTask {
    /// Wait up to so long for the task to become final; at most 60,000.
    #[cfg_attr(feature = "openapi", param(default = 0))]
    pub wait_ms: Option<u64>,
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct ListTasks {
    /// Only tasks of this queue.
    pub queue: Option<String>,
    /// Only tasks in this state.
    #[cfg_attr(feature = "openapi", param(inline))]
    pub state: Option<TaskState>,
    /// Most tasks on the page, from 1 to 1,000.
    #[cfg_attr(feature = "openapi", param(default = 100))]
    pub limit: Option<usize>,
    /// The `nextPageToken` of the page before, with the same filters.
    pub page_token: Option<String>,
}

/// One page: the queues by name, in each the newest task first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TaskList {
    pub tasks: Vec<Task>,
    /// Missing on the last page. A page may be short, even empty, although more follow.
    pub next_page_token: Option<String>,
}
