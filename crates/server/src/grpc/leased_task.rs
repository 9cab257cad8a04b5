//! Converts a granted lease to the message that a worker gets over gRPC.

use authority::command::Grant;
use bytes::Bytes;
use execution::{EXECUTION_QUEUE, ExecutionPayload};
use wire::grpc::LeasedTask;

use super::MAX_SENT_MESSAGE_BYTES;
use super::values::{millis, timestamp};
use crate::app::App;
use crate::convert::task_context;

pub(super) fn to_proto(app: &App, grant: &Grant) -> LeasedTask {
    let options = grant.options.as_deref();
    let is_execution = &*grant.queue.name == EXECUTION_QUEUE;
    let execution = is_execution.then(|| ExecutionPayload::decode(&grant.payload).ok()).flatten();
    let timeout_ms = execution.as_ref().and_then(|payload| payload.timeout_ms);
    let (operation_name, action_digest) =
        execution.map(|payload| (payload.operation_name, payload.action_digest)).unwrap_or_default();
    LeasedTask {
        task_id: grant.task.to_string(),
        operation_name,
        action_digest,
        timeout: options.and_then(|options| options.timeout_ms).or(timeout_ms).map(millis),
        lease_expires_at: Some(timestamp(grant.expires_at)),
        lease_id: app.lease_ids.make(&grant.lease_ref()),
        attempt: grant.attempt,
        queue: grant.queue.name.to_string(),
        payload: Bytes::copy_from_slice(&grant.payload),
        fencing_token: grant.fencing_token.0,
        granted_at: Some(timestamp(grant.granted_at)),
        heartbeat_interval: Some(millis(grant.heartbeat_interval_ms)),
        deadline: options.and_then(|options| options.deadline).map(timestamp),
        created_at: Some(timestamp(grant.created_at)),
        partial_progress_json: grant
            .partial_progress
            .as_deref()
            .map(Bytes::copy_from_slice)
            .unwrap_or_default(),
        ..task_context::to_proto(options)
    }
}

/// How many fit into a message that clients can read. At least one: a payload with its resources always fits.
pub(super) fn how_many_fit(grants: &[Grant]) -> usize {
    let mut message_bytes = 0;
    let fit = grants.iter().take_while(|grant| {
        message_bytes += bytes(grant);
        message_bytes <= MAX_SENT_MESSAGE_BYTES
    });
    fit.count().max(1).min(grants.len())
}

/// What a grant adds to a message: its contents, and room for all else.
fn bytes(grant: &Grant) -> usize {
    const OTHER_BYTES: usize = 4 * 1_024;
    let resources = grant.options.as_ref().and_then(|options| options.resources.as_ref());
    let progress = grant.partial_progress.as_ref().map_or(0, |json| json.len());
    OTHER_BYTES + grant.payload.len() + resources.map_or(0, |json| json.len()) + progress
}
