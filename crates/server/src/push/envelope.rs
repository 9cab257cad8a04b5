//! The envelope that a task is pushed in, made from the lease that was granted for it.

use std::sync::Arc;

use authority::LeaseRef;
use authority::command::Grant;
use coordinator::Unavailable;
use wire::TaskEnvelope;

use crate::app::App;
use crate::convert::task_json::{to_json, to_text};
use crate::convert::time::to_timestamp;

impl App {
    /// The envelope of a task that was leased to `holder`. Its worker calls back to `callback_base_url`; the dispatch
    /// id is for the target, which may get the same envelope twice.
    pub async fn task_envelope(
        &self,
        holder: &Arc<str>,
        grant: &Grant,
        callback_base_url: &str,
        dispatch_id: &str,
    ) -> Result<TaskEnvelope, Unavailable> {
        let scope = &grant.queue.scope;
        let lease = LeaseRef {
            scope: scope.clone(),
            worker: holder.clone(),
            task: grant.task,
            attempt: grant.attempt,
            lease: grant.lease,
        };
        let extras = grant.extras.as_deref().cloned().unwrap_or_default();
        let run_id = to_text(&extras.run_id).unwrap_or_else(|| format!("run_{}", grant.task));
        let key_ring = self.task_tokens().key_ring(self.handle()).await?;
        let now = self.handle().now();
        let issued = key_ring.issue(&lease, &run_id, extras.deadline, grant.cancel_grace_ms, now);
        let no_resources: &[u8] = b"{}";
        Ok(TaskEnvelope {
            task_id: grant.task.to_string(),
            run_id,
            asset_id: to_text(&extras.asset_id),
            task_key: to_text(&extras.task_key).unwrap_or_else(|| grant.queue.name.to_string()),
            queue: Some(grant.queue.name.to_string()),
            tenant_id: scope.tenant.to_string(),
            workspace_id: scope.workspace.to_string(),
            attempt: grant.attempt,
            resources: to_json(extras.resources.as_deref().unwrap_or(no_resources)),
            enqueued_at: to_timestamp(grant.created_at),
            deadline: extras.deadline.map(to_timestamp),
            callback_base_url: callback_base_url.to_owned(),
            task_token: issued.token,
            token_expires_at: to_timestamp(issued.expires_at),
            heartbeat_interval_ms: grant.heartbeat_interval_ms,
            heartbeat_timeout_ms: grant.length_ms,
            cancel_grace_period_ms: grant.cancel_grace_ms,
            payload: to_json(&grant.payload),
            fencing_token: grant.lease.0,
            dispatch_id: dispatch_id.to_owned(),
        })
    }
}
