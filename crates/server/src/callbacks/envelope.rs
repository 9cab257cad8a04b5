//! The envelope that a task is pushed in, made from the lease that was granted for it.

use std::sync::Arc;

use authority::LeaseRef;
use authority::command::Grant;
use coordinator::Unavailable;
use wire::TaskEnvelope;

use crate::app::App;
use crate::tasks::answer::{json, text};
use crate::time::shown;

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
            fencing_token: grant.fencing_token,
        };
        let options = grant.options.as_deref().cloned().unwrap_or_default();
        let run_id = text(&options.run_id).unwrap_or_else(|| format!("run_{}", grant.task));
        let ring = self.task_tokens().ring(self.handle()).await?;
        let now = self.handle().now();
        let issued = ring.issue(&lease, &run_id, options.deadline, grant.cancel_grace_ms, now);
        let no_resources: &[u8] = b"{}";
        Ok(TaskEnvelope {
            task_id: grant.task.to_string(),
            run_id,
            asset_id: text(&options.asset_id),
            task_key: text(&options.task_key).unwrap_or_else(|| grant.queue.name.to_string()),
            queue: Some(grant.queue.name.to_string()),
            tenant_id: scope.tenant.to_string(),
            workspace_id: scope.workspace.to_string(),
            attempt: grant.attempt,
            resources: json(options.resources.as_deref().unwrap_or(no_resources)),
            enqueued_at: shown(grant.created_at),
            deadline: options.deadline.map(shown),
            callback_base_url: callback_base_url.to_owned(),
            task_token: issued.token,
            token_expires_at: shown(issued.expires_at),
            heartbeat_interval_ms: grant.heartbeat_interval_ms,
            heartbeat_timeout_ms: grant.length_ms,
            cancel_grace_period_ms: grant.cancel_grace_ms,
            payload: json(&grant.payload),
            fencing_token: grant.fencing_token.0,
            dispatch_id: dispatch_id.to_owned(),
        })
    }
}
