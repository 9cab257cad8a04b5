//! Checks regularly whether the worker is fit to take tasks.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::Performer;

/// The time between two checks: a full disk is noticed within it, and so is one with free space again.
const INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Health {
    performer: Arc<dyn Performer>,
    state: State,
}

enum State {
    Due(Instant),
    /// In the background: a disk may be slow to answer, and the leases must not wait for it.
    Checking(Pin<Box<dyn Future<Output = Result<(), String>> + Send>>),
}

impl Health {
    pub(super) fn new(performer: Arc<dyn Performer>) -> Health {
        Health { performer, state: State::Due(Instant::now()) }
    }

    /// Makes the next check due now.
    pub(super) fn check_now(&mut self) {
        if let State::Due(due) = &mut self.state {
            *due = Instant::now();
        }
    }

    /// Waits for the next check and returns its result. Cancel-safe.
    pub(super) async fn next_check(&mut self) -> Result<(), String> {
        loop {
            match &mut self.state {
                State::Due(due) => {
                    sleep_until(*due).await;
                    let performer = self.performer.clone();
                    self.state = State::Checking(Box::pin(async move { performer.fitness().await }));
                }
                State::Checking(checking) => {
                    let fitness = checking.await;
                    self.state = State::Due(Instant::now() + INTERVAL);
                    return fitness;
                }
            }
        }
    }
}
