//! Many clients at once, and what they get done a second.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::http::Server;
use super::rate::{Begin, Rate};

/// Before the count begins, so that connections, caches and the queue have settled.
pub const WARM_UP: Duration = Duration::from_millis(500);
/// Tasks that may be submitted and not complete, for each client that submits: enough that no worker waits for one.
const OPEN_TASKS_PER_CLIENT: usize = 4;

/// They run until the measurement is over.
pub struct Crowd {
    pub members: JoinSet<Result<()>>,
    /// What they have done so far.
    pub done: Arc<AtomicU64>,
    /// Room for tasks that are not complete.
    pub room: Arc<Semaphore>,
}

impl Crowd {
    pub fn new(clients: usize) -> Crowd {
        Crowd {
            members: JoinSet::new(),
            done: Arc::new(AtomicU64::new(0)),
            room: Arc::new(Semaphore::new(clients * OPEN_TASKS_PER_CLIENT)),
        }
    }

    /// Counts what happens between the end of the warm-up and the end of the time. A member that fails ends it.
    pub async fn measure(mut self, server: Option<&Server>, time: Duration) -> Result<Rate> {
        tokio::time::sleep(WARM_UP).await;
        let begin = Begin::now(server, &self.done)?;
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            ended = self.members.join_next() => ended.context("nobody to measure")???,
        }
        let rate = begin.until_now()?;
        self.members.shutdown().await;
        Ok(rate)
    }
}
