//! Checks regularly whether the worker is fit to take tasks.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::Performer;

/// The time between two checks: a full disk is noticed within it, and so is one with free space again.
const INTERVAL: Duration = Duration::from_secs(1);

type Check = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

pub(super) struct Health {
    performer: Arc<dyn Performer>,
    due: Instant,
    /// In the background: a disk may be slow to answer, and the leases must not wait for it.
    checking: Option<Check>,
}

impl Health {
    pub(super) fn new(performer: Arc<dyn Performer>) -> Health {
        Health { performer, due: Instant::now(), checking: None }
    }

    /// Makes the next check due now.
    pub(super) fn check_now(&mut self) {
        self.due = Instant::now();
    }

    /// Waits for the next check and returns its result. Cancel-safe.
    pub(super) async fn next_check(&mut self) -> Result<(), String> {
        if self.checking.is_none() {
            sleep_until(self.due).await;
        }
        let checking = self.checking.get_or_insert_with(|| {
            let performer = self.performer.clone();
            Box::pin(async move { performer.fitness().await })
        });
        let fitness = checking.await;
        self.checking = None;
        self.due = Instant::now() + INTERVAL;
        fitness
    }
}
