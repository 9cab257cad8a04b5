//! The summary of a run as one JSON object.

use std::time::Duration;

use serde::Serialize;

use super::outputs::Output;

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    pub exit_code: i32,
    pub cached: bool,
    pub operation: String,
    pub action_digest: String,
    pub command_digest: String,
    pub input_root_digest: String,
    pub stdout_digest: String,
    pub stderr_digest: String,
    /// The worker that ran it, if the server says so.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub worker: String,
    pub outputs: Vec<Output>,
    pub missing_outputs: Vec<String>,
    pub uploaded_blobs: usize,
    pub uploaded_bytes: u64,
    pub timings: Timings,
}

/// What each part took.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Timings {
    pub inputs_ms: u64,
    pub upload_ms: u64,
    pub execute_ms: u64,
    pub download_ms: u64,
    pub total_ms: u64,
}

pub(super) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
