//! Whether the worker is fit to take tasks, looked at again and again.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::Performer;

/// Time between two looks: a full disk is noticed within it, and so is one that has room again.
const INTERVAL: Duration = Duration::from_secs(1);

pub struct Health {
    performer: Arc<dyn Performer>,
    state: State,
}

enum State {
    Due(Instant),
    /// A disk may take its time to answer, and the leases must not wait for it.
    Looking(Pin<Box<dyn Future<Output = Result<(), String>> + Send>>),
}

impl Health {
    pub fn new(performer: Arc<dyn Performer>) -> Health {
        Health { performer, state: State::Due(Instant::now()) }
    }

    /// There is a reason to look without waiting.
    pub fn look_now(&mut self) {
        if let State::Due(due) = &mut self.state {
            *due = Instant::now();
        }
    }

    /// Waits for the next look and says what it found. Nothing is lost when this is dropped.
    pub async fn found(&mut self) -> Result<(), String> {
        loop {
            match &mut self.state {
                State::Due(due) => {
                    sleep_until(*due).await;
                    let performer = self.performer.clone();
                    self.state = State::Looking(Box::pin(async move { performer.fitness().await }));
                }
                State::Looking(looking) => {
                    let found = looking.await;
                    self.state = State::Due(Instant::now() + INTERVAL);
                    return found;
                }
            }
        }
    }
}
