//! Generates load: many clients at once, and how many operations they complete in a second.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::http::Server;
use super::rate::{Measurement, Rate};

/// Before the count begins, so that connections, caches and the queue have settled.
pub(crate) const WARM_UP: Duration = Duration::from_millis(500);
/// Tasks that may be submitted and not complete, for each client that submits: enough that no worker waits for one.
const OPEN_TASKS_PER_CLIENT: usize = 4;

/// Clients that run until the measurement is over.
pub(crate) struct LoadGenerator {
    pub clients: JoinSet<Result<()>>,
    /// Operations completed so far.
    pub done: Arc<AtomicU64>,
    /// Permits for tasks that are submitted and not complete.
    pub open_tasks: Arc<Semaphore>,
}

impl LoadGenerator {
    pub(crate) fn new(clients: usize) -> LoadGenerator {
        LoadGenerator {
            clients: JoinSet::new(),
            done: Arc::new(AtomicU64::new(0)),
            open_tasks: Arc::new(Semaphore::new(clients * OPEN_TASKS_PER_CLIENT)),
        }
    }

    /// Counts what happens between the end of the warm-up and the end of the time. A client that fails ends the measurement.
    pub(crate) async fn measure(mut self, server: Option<&Server>, time: Duration) -> Result<Rate> {
        tokio::time::sleep(WARM_UP).await;
        let measurement = Measurement::start(server, &self.done)?;
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            ended = self.clients.join_next() => ended.context("nobody to measure")???,
        }
        let rate = measurement.finish()?;
        self.clients.shutdown().await;
        Ok(rate)
    }
}
