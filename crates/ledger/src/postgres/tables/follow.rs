//! Tables that follow the ledger: the net change of many batches at once, on a thread of its own.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use authority::Position;

use super::Tables;
use super::missing::missing_changes;
use super::queue::{Queue, Sender, queue};
use super::replay::despite_trims;
use super::rows::TableRows;
use super::session::TablesSession;
use super::statements::follow;
use crate::postgres::batch_row::position;
use crate::postgres::connection::Session;
use crate::postgres::{Database, Error, PostgresReader};
use crate::{Changes, ErrorKind, RecoveryError};

/// Changes are collected for this long, and then written.
const PAUSE: Duration = Duration::from_millis(500);
/// The same while tables catch up.
const SHORT_PAUSE: Duration = Duration::from_millis(10);
/// Most tasks and attempts whose changes are held. Where there are more, the ledger has to say later what changed.
const MAX_CHANGES: usize = 100_000;

/// The longest that an append waits for tables that catch up. A pause of all requests is to stay well below a second.
const MAX_CATCH_UP: Duration = Duration::from_millis(200);
/// An append waits only for tables that lack at most so many records.
const MAX_BEHIND: u64 = 1_000;
/// The longest that the end waits until the rest is written. The next owner adds what is not.
const MAX_LAST_WRITE: Duration = Duration::from_secs(5);

/// Dropping it writes what is left, if the database takes it in time.
pub(in crate::postgres) struct Follower {
    batches: Option<Sender>,
    /// Closed when the thread has ended; none when nobody waits for that.
    ended: Option<Receiver<()>>,
    progress: Arc<Progress>,
    /// Where the tables were after an append has waited for them.
    waited_at: Option<Position>,
}

/// Where the tables are, for an append that waits for them.
#[derive(Default)]
struct Progress {
    state: Mutex<Reached>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
struct Reached {
    /// The tables hold every record up to here.
    position: Position,
    /// They need a rebuild.
    is_lost: bool,
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, Reached> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, reached: Reached) {
        *self.state() = reached;
        self.changed.notify_all();
    }
}

impl Follower {
    /// Begins with what the tables lack up to a position.
    pub(in crate::postgres) fn spawn(database: Database, to: Position) -> Result<Follower, Error> {
        let (batches, waiting) = queue();
        let (running, ended) = channel();
        let progress = Arc::<Progress>::default();
        let is_short = database.options().tables == Tables::Transaction;
        let pending = Pending {
            session: TablesSession::new(database.clone()),
            database,
            collected: Collected { changes: Changes::default(), from: to, to },
            is_found: false,
            missing: None,
            lost_at: None,
            pause: if is_short { SHORT_PAUSE } else { PAUSE },
            is_failing: false,
            progress: progress.clone(),
        };
        std::thread::Builder::new().name("lessor-tables".into()).spawn(move || {
            let _running = running;
            pending.follow(&waiting);
        })?;
        Ok(Follower { batches: Some(batches), ended: Some(ended), progress, waited_at: None })
    }

    /// Whether the tables hold every record up to the last one, or only a rebuild brings them there. Waits for tables that
    /// are almost there.
    pub(in crate::postgres) fn is_done(&mut self, last: Position) -> bool {
        let is_on_the_way = |reached: &mut Reached| reached.position < last && !reached.is_lost;
        let mut reached = self.progress.state();
        // An append that has waited in vain is followed by one that waits only if that has brought something.
        let is_worth_it = self.waited_at.is_none_or(|waited| {
            reached.position > waited && last.0 - reached.position.0.min(last.0) <= MAX_BEHIND
        });
        if is_worth_it && is_on_the_way(&mut reached) {
            let waited = self.progress.changed.wait_timeout_while(reached, MAX_CATCH_UP, is_on_the_way);
            reached = waited.unwrap_or_else(PoisonError::into_inner).0;
            self.waited_at = Some(reached.position);
        }
        !is_on_the_way(&mut reached)
    }

    /// Up to here the tables hold every record.
    pub(in crate::postgres) fn position(&self) -> Position {
        self.progress.state().position
    }

    /// Ends it without a wait: nothing is left to be written, or nothing can be.
    pub(in crate::postgres) fn release(mut self) {
        self.ended = None;
    }

    /// Adds the changes of a durable batch that ended before `next`. Waits for nothing.
    pub(in crate::postgres) fn add(&self, changes: &Changes, next: Position) {
        if let Some(batches) = &self.batches {
            batches.send(changes, Position(next.0 - 1));
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(ended) = self.ended.take()
            && ended.recv_timeout(MAX_LAST_WRITE) == Err(RecvTimeoutError::Timeout)
        {
            tracing::warn!("the tables were not written to the end in time; the next owner goes on");
        }
    }
}

/// The net change that is not written yet: of the records after `from` up to `to`.
struct Collected {
    changes: Changes,
    from: Position,
    to: Position,
}

impl Collected {
    /// Adds the changes of the records after `self.to`, or drops all when they are too many. Says whether it holds them.
    fn add(&mut self, changes: &Changes, to: Position) -> bool {
        if to <= self.to {
            return true;
        }
        self.changes.merge(changes);
        self.to = to;
        let fits = self.changes.len() <= MAX_CHANGES;
        if !fits {
            self.begin_after(to);
        }
        fits
    }

    /// Drops all if the changes of records up to `skipped` were not added. Says whether they were.
    fn skip(&mut self, skipped: Position) -> bool {
        let has_added = skipped <= self.to;
        if !has_added {
            self.begin_after(skipped);
        }
        has_added
    }

    fn begin_after(&mut self, position: Position) {
        *self = Collected { changes: Changes::default(), from: position, to: position };
    }

    /// Adds the changes of the records after `from` up to `to`. Says whether they end where these begin.
    fn add_before(&mut self, mut changes: Changes, from: Position, to: Position) -> bool {
        let fits = to == self.from;
        if fits {
            changes.merge(&self.changes);
            (self.changes, self.from) = (changes, from);
        }
        fits
    }
}

/// What the ledger says of the records after `from` up to `to`.
struct Missing {
    from: Position,
    to: Position,
    changes: Result<Option<Changes>, RecoveryError>,
}

struct Pending {
    database: Database,
    session: TablesSession,
    collected: Collected,
    /// The tables were seen where the collected changes begin, or are about to be.
    is_found: bool,
    /// Reads what the tables lack. It may load a snapshot, while changes are collected.
    missing: Option<JoinHandle<Missing>>,
    /// The position of tables that only a rebuild can repair.
    lost_at: Option<Position>,
    /// How long changes are collected.
    pause: Duration,
    is_failing: bool,
    progress: Arc<Progress>,
}

impl Pending {
    fn follow(mut self, waiting: &Queue) {
        loop {
            if !self.is_found && self.missing.is_none() {
                self.find();
            }
            let is_last = self.collect(waiting);
            self.take_missing();
            if self.is_found && self.collected.from < self.collected.to {
                self.write();
            }
            if is_last {
                return;
            }
        }
    }

    /// Says whether nothing more will come.
    fn collect(&mut self, waiting: &Queue) -> bool {
        let pause = match (&self.missing, self.is_failing || !self.is_found) {
            (Some(_), _) => SHORT_PAUSE,
            (None, true) => PAUSE,
            (None, false) => self.pause,
        };
        let until = Instant::now() + pause;
        loop {
            let received = waiting.receive(until);
            self.is_found &= self.collected.skip(waiting.skipped());
            match received {
                Ok((changes, to)) => self.is_found &= self.collected.add(&changes, to),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    /// Looks where the tables are, and begins to read what they lack.
    fn find(&mut self) {
        let to = self.collected.from;
        let shard = self.database.shard();
        match self.session.run(move |session| tables_position(session, shard)) {
            Ok((from, _)) if from >= to => {
                self.is_found = true;
                self.lost_at = None;
                self.progress.set(Reached { position: from.min(self.collected.to), is_lost: false });
            }
            // A failover has undone records that the owner appends again.
            Ok((_, end)) if end < to => {}
            Ok((from, _)) if self.lost_at == Some(from) => {}
            Ok((from, _)) => {
                let reader = PostgresReader::new(self.database.clone());
                let read = move || {
                    let changes = despite_trims(&reader, || missing_changes(&reader, from, to));
                    Missing { from, to, changes }
                };
                self.missing = std::thread::Builder::new().name("lessor-missing".into()).spawn(read).ok();
            }
            Err(error) => tracing::warn!(%error, "the tables could not be read; trying again"),
        }
    }

    /// Takes what was read of what the tables lack.
    fn take_missing(&mut self) {
        let Some(missing) = self.missing.take_if(|missing| missing.is_finished()) else { return };
        let Ok(Missing { from, to, changes }) = missing.join() else { return };
        match changes {
            Ok(Some(changes)) => self.is_found = self.collected.add_before(changes, from, to),
            Err(RecoveryError::Ledger(error))
                if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::BeyondEnd) =>
            {
                tracing::warn!(%error, "what the tables lack could not be read; trying again");
            }
            lost => {
                if let Err(error) = lost {
                    tracing::error!(%error, "what the tables lack cannot be read");
                }
                self.lost_at = Some(from);
                self.progress.set(Reached { position: from, is_lost: true });
                tracing::warn!(
                    position = from.0,
                    "the tables lack too many records, or some that the ledger has trimmed; run `lessor tables rebuild`"
                );
            }
        }
    }

    fn write(&mut self) {
        let Collected { changes, from, to } = &self.collected;
        let rows = TableRows::of(changes, self.database.table_context());
        let (shard, from, to) = (self.database.shard(), from.0 as i64, to.0 as i64);
        let written = self.session.run(move |session| async move {
            match follow(&session, shard, (from, to), &rows).await {
                Err(error) if error.is_unusable_value() => {
                    tracing::error!(%error, from, to, "the tables cannot hold all content of the records");
                    follow(&session, shard, (from, to), &rows.without_json()).await
                }
                written => written,
            }
        });
        self.is_failing = !matches!(written, Ok(true));
        match written {
            Ok(true) => {
                self.collected.changes = Changes::default();
                self.collected.from = self.collected.to;
                self.progress.set(Reached { position: self.collected.to, is_lost: false });
            }
            // A failover has undone what was written, or a rebuild has gone on to where these changes do not reach yet.
            Ok(false) => self.is_found = false,
            Err(error) => tracing::warn!(%error, "the tables could not be written; trying again"),
        }
    }
}

/// The position up to which the tables lack nothing, and that of the last record in the database.
pub(in crate::postgres) async fn tables_position(
    session: Arc<Session>,
    shard: i32,
) -> Result<(Position, Position), Error> {
    let sql = "SELECT position, ledger_position FROM lessor.projected WHERE shard = $1";
    let row = session.query_opt(sql, &[&shard]).await?;
    let row = row.ok_or_else(|| Error::Damaged("a shard has no row in lessor.table_state".to_owned()))?;
    Ok((position(row.get(0)), position(row.get(1))))
}

#[cfg(test)]
mod tests {
    use authority::TaskId;

    use super::*;

    fn purged(tasks: std::ops::Range<u128>) -> Changes {
        let mut changes = Changes::default();
        changes.purged.extend(tasks.map(TaskId));
        changes
    }

    fn collected(from: u64) -> Collected {
        Collected { changes: Changes::default(), from: Position(from), to: Position(from) }
    }

    #[test]
    fn changes_that_are_not_written_are_bounded() {
        let mut collected = collected(5);
        let half = MAX_CHANGES as u128 / 2;
        assert!(collected.add(&purged(0..half), Position(6)));
        assert!(collected.add(&purged(half..2 * half), Position(7)));
        assert_eq!((collected.from, collected.to), (Position(5), Position(7)));
        assert!(!collected.add(&purged(2 * half..2 * half + 1), Position(8)));
        assert!(collected.changes.is_empty());
        assert_eq!(
            (collected.from, collected.to),
            (Position(8), Position(8)),
            "what comes is collected again"
        );
        assert!(collected.add(&purged(0..1), Position(9)));
        assert_eq!((collected.from, collected.changes.len()), (Position(8), 1));
    }

    #[test]
    fn the_changes_before_a_batch_that_was_skipped_are_left_to_the_ledger() {
        let mut collected = collected(5);
        assert!(collected.add(&purged(0..1), Position(6)));
        assert!(collected.skip(Position(6)), "it was not skipped");
        assert!(!collected.skip(Position(9)));
        assert_eq!((collected.from, collected.to), (Position(9), Position(9)));
        // Those that were queued before it are known to the ledger, too.
        assert!(collected.add(&purged(1..2), Position(7)) && collected.changes.is_empty());
        assert!(collected.skip(Position(9)) && collected.add(&purged(2..3), Position(10)));
        assert_eq!((collected.from, collected.to), (Position(9), Position(10)));
        assert_eq!(collected.changes.purged, [2].map(TaskId).into());
    }

    #[test]
    fn what_was_missing_counts_only_if_nothing_was_dropped_since() {
        let mut collected = collected(8);
        assert!(collected.add(&purged(0..1), Position(9)));
        assert!(!collected.add_before(purged(5..7), Position(2), Position(5)));
        assert_eq!((collected.from, collected.changes.len()), (Position(8), 1));
        assert!(collected.add_before(purged(5..7), Position(2), Position(8)));
        assert_eq!((collected.from, collected.to), (Position(2), Position(9)));
        assert_eq!(collected.changes.purged, [0, 5, 6].map(TaskId).into());
    }
}
