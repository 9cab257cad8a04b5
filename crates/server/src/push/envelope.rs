//! The envelope that a task is pushed in, made from the lease that was granted for it.

use authority::command::Grant;
use coordinator::Unavailable;
use wire::TaskEnvelope;

use crate::app::App;
use crate::convert::task_json::{to_json, to_text};
use crate::convert::time::to_timestamp;

/// The envelope of a leased task, without its dispatch id. Its worker calls back to `callback_base_url`.
pub async fn task_envelope(
    app: &App,
    grant: &Grant,
    callback_base_url: &str,
) -> Result<TaskEnvelope, Unavailable> {
    let scope = &grant.queue.scope;
    let options = grant.options.as_deref().cloned().unwrap_or_default();
    let run_id = to_text(&options.run_id).unwrap_or_else(|| format!("run_{}", grant.task));
    let key_ring = app.task_tokens().key_ring(app.handle()).await?;
    let now = app.handle().now();
    let issued = key_ring.issue(&grant.lease_ref(), &run_id, options.deadline, grant.cancel_grace_ms, now);
    let no_resources: &[u8] = b"{}";
    Ok(TaskEnvelope {
        task_id: grant.task.to_string(),
        run_id,
        asset_id: to_text(&options.asset_id),
        task_key: to_text(&options.task_key).unwrap_or_else(|| grant.queue.name.to_string()),
        queue: Some(grant.queue.name.to_string()),
        tenant_id: scope.tenant.to_string(),
        workspace_id: scope.workspace.to_string(),
        attempt: grant.attempt,
        resources: to_json(options.resources.as_deref().unwrap_or(no_resources)),
        enqueued_at: to_timestamp(grant.created_at),
        deadline: options.deadline.map(to_timestamp),
        callback_base_url: callback_base_url.to_owned(),
        task_token: issued.token,
        token_expires_at: to_timestamp(issued.expires_at),
        heartbeat_interval_ms: grant.heartbeat_interval_ms,
        heartbeat_timeout_ms: grant.length_ms,
        cancel_grace_period_ms: grant.cancel_grace_ms,
        payload: to_json(&grant.payload),
        fencing_token: grant.fencing_token.0,
        dispatch_id: String::new(),
    })
}
