//! Submitting one task.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Json, TaskState, object};

/// A task to be done. Only `queue` and `payload` are required.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubmitTask {
    /// The queue that the task waits in. It exists from its first use.
    pub queue: String,
    /// What the worker gets: any JSON, at most 1 MiB.
    pub payload: Json,
    /// Lower is sooner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(default = 0))]
    pub priority: Option<i32>,
    /// How long the task waits before it may be leased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(default = 0))]
    pub delay_ms: Option<u64>,
    /// The same key with the same payload and properties gives the same task; with others it is a conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_key: Option<String>,
    /// The queue's setting when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The queue's setting when missing.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// What a worker must offer to get the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<BTreeMap<String, String>>,
    /// When the task is dead, or asked to stop, unless it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub deadline: Option<Timestamp>,
    /// How long one attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How long a lease lives without a heartbeat; the queue's setting when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asset_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_key: Option<String>,
    /// A JSON object for the worker, kept as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Json>,
}

impl SubmitTask {
    /// A task with nothing but what is required.
    pub fn new(queue: impl Into<String>, payload: Json) -> SubmitTask {
        SubmitTask {
            queue: queue.into(),
            payload,
            priority: None,
            delay_ms: None,
            dedup_key: None,
            max_attempts: None,
            backoff: None,
            properties: None,
            deadline: None,
            timeout_ms: None,
            lease_ms: None,
            run_id: None,
            asset_id: None,
            task_key: None,
            resources: None,
        }
    }
}

/// How long a task waits before its next attempt. What is missing follows the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Backoff {
    /// The wait after the first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(default = 1000))]
    pub initial_ms: Option<u64>,
    /// How much longer each further wait is; 1 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(default = 2.0))]
    pub factor: Option<f64>,
    /// The longest wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(default = 300000))]
    pub max_ms: Option<u64>,
    /// The share of the wait that is left to chance; 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(default = 0.2))]
    pub jitter: Option<f64>,
}

/// The task that was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Submitted {
    pub task_id: String,
    pub state: TaskState,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_is_an_object_or_missing() {
        let read = |backoff: &str| {
            let text = format!(r#"{{"queue":"q","payload":null,"backoff":{backoff}}}"#);
            serde_json::from_str::<SubmitTask>(&text).map(|task| task.backoff)
        };
        assert_eq!(read("null").unwrap(), None);
        let half = Backoff { factor: Some(1.5), ..Backoff::default() };
        assert_eq!(read(r#"{"factor":1.5}"#).unwrap(), Some(half));
        assert!(read("[1000,2.0]").is_err());
        assert!(read("5").is_err());
    }
}
