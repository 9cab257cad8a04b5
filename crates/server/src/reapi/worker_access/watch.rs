//! Notices the end of leases, and the leases that were granted before this process started.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use authority::limits::MAX_PAGE;
use authority::{LeaseRef, Position, Scope, TaskId, TaskState};
use backon::{BackoffBuilder, ExponentialBuilder};
use coordinator::{Unavailable, WaitCondition};
use execution::EXECUTION_QUEUE;
use tokio::time::sleep;

use super::WorkerAccess;
use super::lease_table::key_of;

/// Longest wait for the end of a lease before it is asked for again.
const MAX_WAIT: Duration = Duration::from_secs(3_600);
/// Shortest and longest pause before an overloaded coordinator is asked again.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

impl WorkerAccess {
    /// Forgets a lease when it is over.
    pub(super) fn watch_until_over(&self, lease: LeaseRef) {
        let access = self.clone();
        tokio::spawn(async move {
            access.until_over(&lease.scope, lease.task, lease.fencing_token).await;
            access.table().end(&key_of(&lease));
        });
    }

    /// Finds the leases of executions that were granted before this process started. Until their holders come back or they are
    /// over, a worker that reads what it may not is asked to repeat its call.
    pub(in crate::reapi) async fn find_unclaimed(&self) {
        let pauses = ExponentialBuilder::new().without_max_times();
        let mut pauses = pauses.with_min_delay(MIN_PAUSE).with_max_delay(MAX_PAUSE).build();
        loop {
            match self.list_unclaimed().await {
                Ok(()) | Err(Unavailable::Stopped) => break,
                Err(_) => sleep(pauses.next().unwrap_or(MAX_PAUSE)).await,
            }
        }
        self.0.is_loaded.store(true, Ordering::Release);
    }

    async fn list_unclaimed(&self) -> Result<(), Unavailable> {
        let (handle, queue): (_, Arc<str>) = (&self.0.handle, Arc::from(EXECUTION_QUEUE));
        for scope in handle.scopes_with(queue.clone()).await? {
            let mut after = None;
            loop {
                let (of, state) = (Some(queue.clone()), Some(TaskState::Leased));
                let page = handle.list(scope.clone(), of, state, after, MAX_PAGE).await?;
                for view in &page.tasks {
                    if let Some(lease) = view.task.lease() {
                        self.note_unclaimed(&scope, view.task.id, lease.fencing_token);
                    }
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn note_unclaimed(&self, scope: &Scope, task: TaskId, token: Position) {
        if !self.table().add_unclaimed(&scope.tenant, (token, task)) {
            return;
        }
        let (access, scope) = (self.clone(), scope.clone());
        tokio::spawn(async move {
            access.until_over(&scope, task, token).await;
            access.table().claim(&scope.tenant, &(token, task));
        });
    }

    /// Waits until a lease is over or the coordinator stops.
    async fn until_over(&self, scope: &Scope, task: TaskId, token: Position) {
        let condition = WaitCondition::LeaseOverForServer(token);
        let pauses = ExponentialBuilder::new().without_max_times();
        let pauses = pauses.with_min_delay(MIN_PAUSE).with_max_delay(MAX_PAUSE);
        let mut pause = pauses.build();
        loop {
            match self.0.handle.wait_task(scope.clone(), task, condition, MAX_WAIT).await {
                Ok(Some(detail)) => {
                    let lease = detail.view.task.lease();
                    if lease.is_none_or(|lease| lease.fencing_token != token) {
                        return;
                    }
                    pause = pauses.build();
                }
                Ok(None) | Err(Unavailable::Stopped) => return,
                Err(_) => sleep(pause.next().unwrap_or(MAX_PAUSE)).await,
            }
        }
    }
}
