//! Tables that follow the ledger: the net change of many batches at once, on a thread of its own.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use authority::Position;

use super::rows::TableRows;
use super::statements::follow;
use crate::Changes;
use crate::postgres::{Database, Error};

/// Changes are collected for this long, and then written.
const PAUSE: Duration = Duration::from_millis(500);
/// Most batches that wait to be merged. An append waits when there are more.
const MAX_WAITING: usize = 1_024;

/// Dropping it writes what is left, if the database takes it.
pub(in crate::postgres) struct Follower {
    batches: Option<SyncSender<(Changes, Position)>>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Goes on from a position, with what the tables lack up to another.
    pub(in crate::postgres) fn spawn(
        database: Database,
        from: Position,
        (missing, to): (Changes, Position),
    ) -> Result<Follower, Error> {
        let (batches, waiting) = sync_channel(MAX_WAITING);
        let pending = Pending { database, changes: missing, from, to };
        let thread = std::thread::Builder::new()
            .name("lessor-tables".into())
            .spawn(move || pending.follow(&waiting))?;
        Ok(Follower { batches: Some(batches), thread: Some(thread) })
    }

    /// Adds the changes of a durable batch that ended before `next`.
    pub(in crate::postgres) fn add(&self, changes: &Changes, next: Position) {
        if let Some(batches) = &self.batches {
            let _ = batches.send((changes.clone(), Position(next.0 - 1)));
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The net change that is not written yet: of the records after `from` up to `to`.
struct Pending {
    database: Database,
    changes: Changes,
    from: Position,
    to: Position,
}

impl Pending {
    fn follow(mut self, waiting: &Receiver<(Changes, Position)>) {
        loop {
            let until = Instant::now() + PAUSE;
            let is_last = loop {
                let left = until.saturating_duration_since(Instant::now());
                match waiting.recv_timeout(left) {
                    Ok((changes, to)) => {
                        self.changes.merge(&changes);
                        self.to = to;
                    }
                    Err(RecvTimeoutError::Timeout) => break false,
                    Err(RecvTimeoutError::Disconnected) => break true,
                }
            };
            if self.from < self.to {
                self.write();
            }
            if is_last {
                return;
            }
        }
    }

    fn write(&mut self) {
        let rows = TableRows::of(&self.changes, self.database.table_context());
        let (shard, from, to) = (self.database.shard(), self.from.0 as i64, self.to.0 as i64);
        let written =
            self.database.run(move |session| async move { follow(&session, shard, (from, to), &rows).await });
        match written {
            Ok(true) => {
                self.changes = Changes::default();
                self.from = self.to;
            }
            // What came is kept, because a rebuild may be under way.
            Ok(false) => tracing::warn!(
                position = self.from.0,
                "the tables lack earlier records, and do not follow; run `lessor tables rebuild`"
            ),
            Err(error) => tracing::warn!(%error, "the tables could not be written; trying again"),
        }
    }
}
