//! Decides how many more tasks an agent can take.
//!
//! The size of a task is known only when it arrives. A task that does not fit beside the running ones is released at no
//! cost, so that another worker may take it, and the agent asks for no more tasks until it would fit: otherwise small
//! tasks would starve a large one. A task that can never fit is a failed attempt, because a released one would come back
//! at once.

use std::time::Duration;

use tokio::sync::watch;
use wire::grpc::ErrorCategory;

use super::pool::{PoolHandle, SlotGuard};
use super::resources::Resources;
use crate::Failure;

pub(super) struct Capacity {
    pool: PoolHandle,
    /// Why the worker takes no tasks.
    unfit: Option<String>,
}

pub(super) enum Fit {
    Now(SlotGuard),
    Later,
    Never(Failure),
}

impl Capacity {
    pub(super) fn new(pool: PoolHandle) -> Capacity {
        Capacity { pool, unfit: None }
    }

    /// Sets the result of the last health check.
    pub(super) fn set_fitness(&mut self, fitness: Result<(), String>) {
        match (&self.unfit, &fitness) {
            (None, Err(why)) => tracing::warn!(why, "the worker is unfit and takes no more tasks"),
            (Some(_), Ok(())) => tracing::info!("the worker is fit and takes tasks again"),
            _ => {}
        }
        self.unfit = fitness.err();
    }

    pub(super) fn is_fit(&self) -> bool {
        self.unfit.is_none()
    }

    /// How many more tasks to ask for.
    pub(super) fn free_slots(&self, now: Duration) -> usize {
        if self.is_fit() { self.pool.free_slots(now) } else { 0 }
    }

    /// When a reservation ends.
    pub(super) fn next_due(&self, now: Duration) -> Option<Duration> {
        self.pool.next_due(now)
    }

    pub(super) fn watch(&self) -> watch::Receiver<()> {
        self.pool.watch()
    }

    /// Whether a task fits beside the running ones.
    pub(super) fn fit(&self, asks: &Resources, now: Duration) -> Fit {
        if let Some(lacking) = self.pool.lacking(asks) {
            let message = format!("the task requests more than this worker has: {lacking}");
            let failure = Failure::new(Failure::NOT_ENOUGH_RESOURCES, ErrorCategory::Infrastructure, message);
            return Fit::Never(failure.retryable());
        }
        if !self.is_fit() {
            return Fit::Later;
        }
        self.pool.take(asks, now).map_or(Fit::Later, Fit::Now)
    }
}
