//! How much more an agent can take on.
//!
//! A task's size is known only when it is there. One that does not fit beside what runs is given back at no cost, so
//! that another worker may have it, and nothing more is asked for until there is room for it: otherwise small tasks would
//! keep a large one out for ever. One that would never fit is a failed attempt, because to give it back would bring it
//! here again at once.

use std::time::Duration;

use tokio::sync::watch;
use wire::grpc::ErrorCategory;

use super::pool::{SlotGuard, PoolHandle};
use super::resources::Resources;
use crate::Failure;

pub struct Capacity {
    pool: PoolHandle,
    /// Why nothing can be begun.
    unfit: Option<String>,
}

pub enum Fit {
    Now(SlotGuard),
    Later,
    Never(Failure),
}

impl Capacity {
    pub fn new(pool: PoolHandle) -> Capacity {
        Capacity { pool, unfit: None }
    }

    /// The worker has looked at itself.
    pub fn set_fitness(&mut self, fitness: Result<(), String>) {
        match (&self.unfit, &fitness) {
            (None, Err(why)) => tracing::warn!(why, "no more tasks are taken until that is over"),
            (Some(_), Ok(())) => tracing::info!("tasks are taken again"),
            _ => {}
        }
        self.unfit = fitness.err();
    }

    pub fn is_fit(&self) -> bool {
        self.unfit.is_none()
    }

    /// How many more tasks to ask for.
    pub fn room(&self, now: Duration) -> usize {
        if self.is_fit() { self.pool.room(now) } else { 0 }
    }

    /// When there may be room by the passing of time alone.
    pub fn next_due(&self, now: Duration) -> Option<Duration> {
        self.pool.next_due(now)
    }

    pub fn watch(&self) -> watch::Receiver<()> {
        self.pool.watch()
    }

    /// Whether a task that has come can be begun beside what runs.
    pub fn judge(&self, asks: &Resources, now: Duration) -> Fit {
        if let Some(lacking) = self.pool.lacking(asks) {
            let message = format!("the task asks for more than this worker has: {lacking}");
            let failure = Failure::new(Failure::NOT_ENOUGH_RESOURCES, ErrorCategory::Infrastructure, message);
            return Fit::Never(failure.retryable());
        }
        if !self.is_fit() {
            return Fit::Later;
        }
        self.pool.take(asks, now).map_or(Fit::Later, Fit::Now)
    }
}
