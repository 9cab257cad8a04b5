//! Dispatches the tasks of one queue to its target: leases tasks while the target has room, and hands each to a dispatch.
//!
//! It holds no more than the tasks that the target has: at most `concurrency` dispatches, each with one payload while it
//! is being sent. The queue's other tasks stay where they are.

use std::sync::Arc;
use std::time::Duration;

use authority::command::{Grant, LeaseTasks, ReleaseLease};
use authority::event::ReleaseCause;
use authority::limits::MAX_GRANTS;
use authority::{Contract, LeaseRef, Properties, PushTarget, QueueKey, TaskView};
use coordinator::Unavailable;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use super::client::Client;
use super::connection_limiter::ConnectionLimiter;
use super::dispatch::Dispatch;
use super::health::Health;
use super::holder;
use crate::app::App;

/// How long one poll waits for a task; the next one follows at once.
const POLL: Duration = Duration::from_secs(60);
/// The pause after the coordinator had too much to do.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct TargetDispatcher {
    pub app: App,
    pub queue: Arc<QueueKey>,
    pub holder: Arc<str>,
    pub target: Arc<PushTarget>,
    pub client: Client,
    pub callback_base_url: Arc<str>,
    pub health: Health,
    pub limiter: ConnectionLimiter,
}

impl TargetDispatcher {
    /// Runs until the coordinator stops. Dropping it ends its dispatches; their leases stay.
    pub(super) async fn run(self: Arc<TargetDispatcher>) {
        let mut dispatches = JoinSet::new();
        while let Err(why) = self.adopt(&mut dispatches).await {
            if why == Unavailable::Stopped {
                return;
            }
            sleep(PAUSE).await;
        }
        loop {
            while dispatches.try_join_next().is_some() {}
            let room = (self.target.concurrency as usize).saturating_sub(dispatches.len());
            if room == 0 {
                dispatches.join_next().await;
                continue;
            }
            let done = match self.health.unwell_until() {
                None => {
                    // What cannot be sent yet had better wait in the queue.
                    let to_send = self.limiter.free_connections(&self.app.push.connections).max(1);
                    self.lease(room.min(to_send).min(MAX_GRANTS), &mut dispatches).await
                }
                Some(until) => {
                    sleep_until(until).await;
                    self.probe(&mut dispatches).await
                }
            };
            match done {
                Ok(()) => {}
                Err(Unavailable::Stopped) => return,
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Takes over what is leased to the target already: before a restart, or before its configuration was changed. What
    /// has not begun is sent again, under the same dispatch id.
    async fn adopt(self: &Arc<TargetDispatcher>, dispatches: &mut JoinSet<()>) -> Result<(), Unavailable> {
        for (_, view) in held(&self.app, &self.queue).await? {
            let began = has_begun(&view);
            if let Some(grant) = grant_of(&view) {
                dispatches.spawn(Dispatch::new(self.clone(), grant).again(began));
            }
        }
        Ok(())
    }

    /// Leases as many tasks as there is room for. When the target has failed while the poll waited, they go back.
    async fn lease(
        self: &Arc<TargetDispatcher>,
        max_tasks: usize,
        to: &mut JoinSet<()>,
    ) -> Result<(), Unavailable> {
        for grant in self.poll(max_tasks).await? {
            to.spawn(Dispatch::new(self.clone(), grant).run(None));
        }
        Ok(())
    }

    /// Tries a target that has failed with one task, and waits for what it says.
    async fn probe(self: &Arc<TargetDispatcher>, dispatches: &mut JoinSet<()>) -> Result<(), Unavailable> {
        for grant in self.poll(1).await? {
            let (answered, was_answered) = oneshot::channel();
            let dispatch = Dispatch::new(self.clone(), grant);
            dispatches.spawn(dispatch.run(Some(answered)));
            let _ = was_answered.await;
        }
        Ok(())
    }

    /// Tasks that require properties are for workers that have them, which a target does not say.
    async fn poll(&self, max_tasks: usize) -> Result<Vec<Grant>, Unavailable> {
        let command = LeaseTasks {
            scope: self.queue.scope.clone(),
            worker: self.holder.clone(),
            session: None,
            queues: vec![self.queue.name.clone()],
            properties: Arc::new(Properties::default()),
            max_tasks,
            request: None,
            contract: Contract::Callbacks,
        };
        self.app.handle.lease(command, POLL).await
    }
}

/// Gives back what was leased for a target that is no more, unless a worker has begun it.
pub(super) async fn give_back_unstarted(app: App, queue: Arc<QueueKey>) {
    let Ok(held) = held(&app, &queue).await else { return };
    for (lease, view) in held {
        if !has_begun(&view) {
            let _ = app.handle.release(ReleaseLease { lease, cause: ReleaseCause::Undelivered }).await;
        }
    }
}

/// What is leased to the target of a queue.
async fn held(app: &App, queue: &Arc<QueueKey>) -> Result<Vec<(LeaseRef, TaskView)>, Unavailable> {
    let scope = &queue.scope;
    let leases = app.handle.leases(scope.clone(), holder(&queue.name)).await?;
    let mut held = Vec::with_capacity(leases.len());
    for one in leases {
        let Some(detail) = app.handle.task(scope.clone(), one.lease.task).await? else { continue };
        let current =
            detail.view.task.lease().is_some_and(|lease| lease.fencing_token == one.lease.fencing_token);
        if current && detail.view.queue == *queue {
            held.push((one.lease, detail.view));
        }
    }
    Ok(held)
}

fn has_begun(view: &TaskView) -> bool {
    view.task.lease().is_some_and(|lease| lease.started_by.is_some())
}

/// The grant of a lease that is held already.
fn grant_of(view: &TaskView) -> Option<Grant> {
    let (task, lease) = (&view.task, view.task.lease()?);
    Some(Grant {
        fencing_token: lease.fencing_token,
        worker: lease.worker.clone(),
        task: task.id,
        attempt: task.attempt,
        queue: view.queue.clone(),
        payload: task.payload.clone(),
        created_at: task.created_at,
        since: None,
        granted_at: lease.granted_at,
        length_ms: lease.length_ms,
        expires_at: lease.expires_at,
        heartbeat_interval_ms: view.settings.heartbeat_interval_ms,
        cancel_grace_ms: view.settings.cancel_grace_ms,
        options: task.options.clone(),
        partial_progress: task.partial_progress().cloned(),
    })
}
