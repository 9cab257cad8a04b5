//! What an execution's task carries: enough for a worker to run it, and for its result to be kept.

use authority::Task;
use blobs::{Digest, DigestFunction};
use serde::{Deserialize, Serialize};

use crate::reapi::metadata::Origin;

/// The queue that executions wait in.
pub const QUEUE: &str = "exec";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Payload {
    pub operation_name: String,
    /// `{hash}/{size}`
    pub action_digest: String,
    /// As REAPI spells it.
    pub digest_function: String,
    pub instance_name: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub do_not_cache: bool,
    /// No result from before this request may be served, so no later request joins an execution from before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_cache_lookup: bool,
    #[serde(default, skip_serializing_if = "Origin::is_empty")]
    pub origin: Origin,
}

impl Payload {
    /// None for a task that is no execution, which anybody may put into the queue.
    pub fn of(task: &Task) -> Option<Payload> {
        Payload::read(&task.payload)
    }

    pub fn read(payload: &[u8]) -> Option<Payload> {
        serde_json::from_slice(payload).ok()
    }

    pub fn digest(&self) -> Option<Digest> {
        let function = DigestFunction::from_name(&self.digest_function.to_lowercase())?;
        Digest::parse(function, &self.action_digest).ok()
    }
}
