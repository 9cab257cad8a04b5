//! The envelope that a task is pushed in, made from the lease that was granted for it.

use authority::command::Grant;
use coordinator::Unavailable;
use data_encoding::BASE32_NOPAD;
use sha2::{Digest, Sha256};
use wire::TaskEnvelope;

use crate::app::App;
use crate::convert::task_json::to_json;
use crate::convert::{task_context, to_timestamp};

/// The envelope of a leased task, without its dispatch id. Its worker calls back to `callback_base_url`.
pub async fn task_envelope(
    app: &App,
    grant: &Grant,
    callback_base_url: &str,
) -> Result<TaskEnvelope, Unavailable> {
    let scope = &grant.queue.scope;
    let deadline = grant.options.as_ref().and_then(|options| options.deadline);
    let (task_id, queue) = (grant.task.to_string(), &grant.queue.name);
    let context = task_context::to_wire(grant.options.as_deref()).in_envelope(&task_id, queue);
    let key_ring = app.task_tokens.key_ring(&app.handle).await?;
    let now = app.handle.now();
    let times_ms = (grant.cancel_grace_ms, grant.heartbeat_interval_ms);
    let issued = key_ring.issue(&grant.lease_ref(), &context.run_id, deadline, times_ms, now);
    Ok(wire::in_task_context!(TaskEnvelope {
        task_id,
        queue: Some(queue.to_string()),
        tenant_id: scope.tenant.to_string(),
        workspace_id: scope.workspace.to_string(),
        attempt: grant.attempt,
        enqueued_at: to_timestamp(grant.created_at),
        deadline: deadline.map(to_timestamp),
        callback_base_url: callback_base_url.to_owned(),
        task_token: issued.token,
        token_expires_at: to_timestamp(issued.expires_at),
        heartbeat_interval_ms: grant.heartbeat_interval_ms,
        heartbeat_timeout_ms: grant.length_ms,
        cancel_grace_period_ms: grant.cancel_grace_ms,
        payload: to_json(&grant.payload),
        fencing_token: grant.fencing_token.0,
        dispatch_id: String::new(),
        partial_progress: grant.partial_progress.as_deref().map(to_json),
        ..context
    }))
}

/// The id of a dispatch: the same each time that an attempt is sent, another for each attempt.
pub(super) fn dispatch_id(run_id: &str, task_id: &str, task_key: &str, attempt: u32) -> String {
    /// 130 bits of the hash.
    const CHARS: usize = 26;
    let hash = Sha256::digest(format!("dispatch:{run_id}:{task_id}:{task_key}:{attempt}"));
    let text = BASE32_NOPAD.encode(&hash).to_ascii_lowercase();
    format!("d_{}", &text[..CHARS])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with Python's hashlib and base64.
    #[test]
    fn a_dispatch_is_named_as_documented() {
        assert_eq!(dispatch_id("run_1", "task_1", "mail", 1), "d_fh7ni5wipyqluwrteifsrqeoma");
    }

    #[test]
    fn every_part_counts() {
        let ids = [
            dispatch_id("r", "t", "k", 1),
            dispatch_id("s", "t", "k", 1),
            dispatch_id("r", "u", "k", 1),
            dispatch_id("r", "t", "l", 1),
            dispatch_id("r", "t", "k", 2),
        ];
        for (n, id) in ids.iter().enumerate() {
            assert!(id.len() == 28 && !ids[n + 1..].contains(id));
        }
    }
}
