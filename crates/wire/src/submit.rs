//! Submitting one task.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::task_context::with_task_context;
use crate::{Json, TaskState, object};

with_task_context! {
    /// A task to be done. Only `queue` and `payload` are required.
    #[serde_with::skip_serializing_none]
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    pub struct SubmitTask {
        /// The queue that the task waits in. It exists from its first use.
        pub queue: String,
        /// What the worker gets: any JSON, at most 1 MiB.
        pub payload: Json,
        /// Lower is sooner.
        #[cfg_attr(feature = "openapi", schema(default = 0))]
        pub priority: Option<i32>,
        /// How long the task waits before it may be leased.
        #[cfg_attr(feature = "openapi", schema(default = 0))]
        pub delay_ms: Option<u64>,
        /// The same key with the same payload and properties gives the same task; with others it is a conflict.
        pub dedup_key: Option<String>,
        /// The queue's setting when missing.
        pub max_attempts: Option<u32>,
        /// The queue's setting when missing.
        #[serde(default, deserialize_with = "object::optional")]
        pub backoff: Option<Backoff>,
        /// What a worker must offer to get the task.
        pub properties: Option<BTreeMap<String, String>>,
        /// When the task is dead, or asked to stop, unless it is done.
        pub deadline: Option<Timestamp>,
        /// How long one attempt may take.
        pub timeout_ms: Option<u64>,
        /// How long a lease lives without a heartbeat; the queue's setting when missing.
        pub lease_ms: Option<u64>,
    }
    /// A JSON object for the worker, kept as it was sent.
    resources
}

impl SubmitTask {
    /// A task with nothing but what is required.
    pub fn new(queue: impl Into<String>, payload: Json) -> SubmitTask {
        SubmitTask { queue: queue.into(), payload, ..SubmitTask::default() }
    }
}

/// How long a task waits before its next attempt. What is missing follows the defaults.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Backoff {
    /// The wait after the first failure.
    #[cfg_attr(feature = "openapi", schema(default = 1000))]
    pub initial_ms: Option<u64>,
    /// How much longer each further wait is; 1 to 100.
    #[cfg_attr(feature = "openapi", schema(default = 2.0))]
    pub factor: Option<f64>,
    /// The longest wait.
    #[cfg_attr(feature = "openapi", schema(default = 300000))]
    pub max_ms: Option<u64>,
    /// The share of the wait that is left to chance; 0 to 1.
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
