//! The preparation of a standby that could take over at once: it opens the session for its appends.

use std::time::{Duration, Instant};

use ledger::postgres::Database;
use tokio::task::{JoinHandle, spawn_blocking};

/// After a failure. The takeover itself opens a session, too.
const RETRY: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Preparation {
    opening: Option<JoinHandle<()>>,
    begun_at: Option<Instant>,
}

impl Preparation {
    /// Opens a session beside everything else, unless there is one.
    pub(super) fn begin(&mut self, database: &Database) {
        let is_opening = self.opening.as_ref().is_some_and(|opening| !opening.is_finished());
        let is_early = self.begun_at.is_some_and(|begun_at| begun_at.elapsed() < RETRY);
        if is_opening || is_early || database.is_prepared_to_write() {
            return;
        }
        let database = database.clone();
        self.begun_at = Some(Instant::now());
        self.opening = Some(spawn_blocking(move || {
            if let Err(error) = database.prepare_to_write() {
                tracing::warn!(%error, "no session could be opened in advance; a takeover would open one first");
            }
        }));
    }

    /// The node does not take over, or the session may be one with another server than that of a new one.
    pub(super) fn end(&mut self, database: &Database) {
        database.end_preparation();
        self.begun_at = None;
    }
}
