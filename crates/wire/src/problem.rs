//! Errors as RFC 9457 problems, with a stable code for programs.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{TaskState, Verdict};

/// The media type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request was not done.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// A URI that names the kind of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem in words; the same for each problem of this kind.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong with this request.
    pub detail: String,
    /// A stable name of the kind of problem, for programs.
    pub code: String,
    /// The field that is wrong, as a path from the root of the request.
    pub field: Option<String>,
    /// The task that stands in the way.
    pub task_id: Option<String>,
    /// On answers to reports: CANCELLED or REJECTED. Missing when nothing was decided.
    pub verdict: Option<Verdict>,
    /// With `outputs_missing`: the first of the outputs that are not in the content store, as `hash/size`.
    pub digests: Option<Vec<String>>,
    /// The final state of a task that was purged, as far as the ledger still tells.
    pub state: Option<TaskState>,
    /// When the purged task ended.
    pub finished_at: Option<Timestamp>,
    /// When the task was purged.
    pub purged_at: Option<Timestamp>,
    /// With `tenant_limit`: the limit of the tenant that is reached, by the key of its setting.
    pub limit: Option<String>,
    /// A URI that names this occurrence.
    pub instance: Option<String>,
}
