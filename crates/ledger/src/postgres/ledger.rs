//! The ledger of one shard, as its writer sees it.

use std::future::Future;
use std::sync::Arc;

use authority::{Event, State, Time};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::Error;
use super::appender::Appender;
use super::batch_row::Place;
use super::feed::Feed;
use super::kept::Kept;
use super::reader::PostgresReader;
use super::ready_session::writer_runtime;
use super::shared::Database;
use super::snapshot::Sink;
use super::sql_table::SqlTable;
use super::tables::{Check, Follower, TableRows, Tables, tables_position};
use super::trim::trim;
use crate::{
    AppendError, Batch, Changes, DiskSpace, Error as LedgerError, Job, Ledger, Link, Position, Reader,
    Refusal, SnapshotError, SnapshotSink, StopWaiting, WantedChanges, record,
};

pub struct PostgresLedger {
    database: Database,
    reader: PostgresReader,
    appender: Appender<SqlTable>,
    /// The session of the writer runs on the thread that appends. `None` only while it is dropped.
    runtime: Option<Runtime>,
    /// Set when nobody waits for the outcome any more.
    stop: watch::Sender<bool>,
    space: DiskSpace,
    /// Writes tables that follow, and what tables lack that are written with their batches. As long as these lack something,
    /// the batches come without their rows.
    follower: Option<Follower>,
    /// The next batch is the first with its rows: the tables hold every record up to here, or need a rebuild.
    caught_up_to: Option<Position>,
    /// Of the tables, after that batch.
    check: Option<Check>,
}

impl PostgresLedger {
    /// Opens the ledger behind its last batch.
    pub fn open(database: Database) -> Result<PostgresLedger, LedgerError> {
        let shard = database.shard();
        let (last, server) = database.run(move |session| async move {
            let sql =
                "SELECT first, next, link FROM lessor.batch WHERE shard = $1 ORDER BY first DESC LIMIT 1";
            let row = session.query_opt(sql, &[&shard]).await?;
            let row = row.ok_or_else(|| Error::Damaged("a shard has no batch".to_owned()))?;
            Ok((Place::read(&row)?, session.server))
        })?;
        database.set_last_durable(Some(last));
        let mut appender = Appender::new(SqlTable(database.clone()), last);
        let ready = database.take_ready_session().and_then(|ready| ready.check(server));
        let runtime = match ready {
            Some((session, runtime)) => {
                appender.set_session(session);
                runtime
            }
            None => writer_runtime()?,
        };
        Ok(PostgresLedger {
            reader: PostgresReader::new(database.clone()),
            appender,
            database,
            runtime: Some(runtime),
            stop: watch::Sender::new(false),
            space: DiskSpace::Plenty,
            follower: None,
            caught_up_to: None,
            check: None,
        })
    }

    /// Opens the ledger for a standby that takes over: what the standby holds beyond the end of the database is appended first. The
    /// batches that are appended from then on go to the feed.
    pub fn open_after(database: Database, kept: &Kept, feed: Feed) -> Result<PostgresLedger, LedgerError> {
        let mut ledger = PostgresLedger::open(database)?;
        ledger.appender.set_feed(feed);
        let runtime = ledger.runtime.as_ref().ok_or(Error::Closed)?;
        if runtime.block_on(ledger.appender.restore(kept))? {
            ledger.database.set_last_durable(Some(ledger.last()));
        }
        Ok(ledger)
    }

    /// Holds what a standby holds that has read up to the end, so that it can be appended again after a failover.
    pub fn hold(&mut self, kept: &Kept) {
        self.appender.hold(kept);
    }

    fn last(&self) -> Place {
        self.appender.last()
    }

    /// Lets batches come with their rows again as soon as the tables lack nothing from before.
    fn catch_up(&mut self) {
        if self.database.options().tables != Tables::Transaction {
            return;
        }
        let last = Position(self.next().0 - 1);
        let has_lost = self.finds_loss();
        if self.appender.lacks_rows() && self.follower.is_none() {
            // Without a thread, the next append tries again.
            self.follower = Follower::spawn(self.database.clone(), last).ok();
        }
        // After a loss nothing can be added before the next batch, which comes without its rows.
        if let Some(follower) = self.follower.take_if(|follower| !has_lost && follower.is_done(last)) {
            self.begin_with_rows(follower.position());
            follower.release();
        }
    }

    /// Batches come with their rows from now on. The tables hold every record up to a position.
    fn begin_with_rows(&mut self, up_to: Position) {
        self.appender.adds_rows();
        self.caught_up_to = Some(up_to);
    }

    /// Whether it has turned out that a failover undid what the tables held when batches began to come with their rows.
    fn finds_loss(&mut self) -> bool {
        let found = self.check.as_mut().and_then(|check| check.finds_loss(&self.database));
        self.check.take_if(|_| found.is_some());
        let has_lost = found == Some(true);
        if has_lost {
            tracing::warn!(
                "PostgreSQL has lost a part of the tables that it had acknowledged; it is written again"
            );
            self.appender.set_lacks_rows();
        }
        has_lost
    }

    /// What a batch writes beside the ledger.
    fn rows(&self, changes: &Changes) -> TableRows {
        let context = self.database.table_context();
        match (self.database.options().tables, &self.follower) {
            (Tables::Transaction, None) => TableRows::of(changes, context),
            _ => TableRows::created_only(changes, context),
        }
    }
}

/// Runs until it is done or nobody waits for it any more.
fn block_on(
    runtime: Option<&Runtime>,
    stop: &watch::Sender<bool>,
    work: impl Future<Output = Result<(), AppendError>>,
) -> Result<(), AppendError> {
    let closed = || AppendError::Unknown(Error::Closed.into());
    let mut stopped = stop.subscribe();
    runtime.ok_or_else(closed)?.block_on(async {
        tokio::select! {
            biased;
            result = work => result,
            _ = stopped.wait_for(|stop| *stop) => Err(closed()),
        }
    })
}

impl Ledger for PostgresLedger {
    fn next(&self) -> Position {
        self.last().next
    }

    fn last_link(&self) -> Option<Link> {
        Some(self.last().link)
    }

    fn append(&mut self, batch: &Batch) -> Result<(), AppendError> {
        if batch.is_empty() && batch.first() == self.next() {
            return self.confirm();
        }
        self.catch_up();
        let mut prepared = self.appender.prepare(batch)?;
        prepared.row.rows = batch.changes().map(|changes| Arc::new(self.rows(changes)));
        let append = self.appender.append(prepared);
        let appended = block_on(self.runtime.as_ref(), &self.stop, append);
        match &appended {
            Ok(()) => {
                self.space = DiskSpace::Plenty;
                self.database.set_last_durable(Some(self.last()));
                if let Some(up_to) = self.caught_up_to.take() {
                    self.appender.forget_tables();
                    self.check = Some(Check::begin(&self.database, up_to));
                }
                if let (Some(follower), Some(changes)) = (&self.follower, batch.changes()) {
                    follower.add(changes, batch.next());
                }
            }
            Err(AppendError::Refused(Refusal::NoSpace)) => self.space = DiskSpace::Nothing,
            Err(_) => {}
        }
        appended
    }

    fn confirm(&mut self) -> Result<(), AppendError> {
        block_on(self.runtime.as_ref(), &self.stop, self.appender.confirm())
    }

    fn has_other_writers(&self) -> bool {
        true
    }

    fn wants_changes(&self) -> WantedChanges {
        match self.database.options().tables {
            Tables::Transaction | Tables::Following => WantedChanges::All,
            Tables::Off => WantedChanges::Created,
        }
    }

    fn recovered(&mut self, state: &State) -> Result<(), LedgerError> {
        let tables = self.database.options().tables;
        if tables == Tables::Off {
            return Ok(());
        }
        let (to, shard) = (state.position(), self.database.shard());
        let position = || self.database.run(move |session| tables_position(session, shard));
        if tables == Tables::Following || position()?.0 < to {
            self.follower = Some(Follower::spawn(self.database.clone(), to)?);
        } else {
            self.begin_with_rows(to);
        }
        self.catch_up();
        Ok(())
    }

    fn stop_waiting(&self) -> Option<StopWaiting> {
        let stop = self.stop.clone();
        Some(Box::new(move || {
            stop.send_replace(true);
        }))
    }

    fn begin_snapshot(&self, begin: Position) -> Result<Box<dyn SnapshotSink>, SnapshotError> {
        Ok(Box::new(Sink::begin(&self.database, begin).map_err(LedgerError::from)?))
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(self.reader.clone())
    }

    fn space(&self) -> DiskSpace {
        self.space
    }

    fn tend(&mut self, now: Time) -> Option<Job> {
        if self.space == DiskSpace::Nothing {
            // Only another attempt shows whether there is space again.
            self.space = DiskSpace::FinishOnly;
            return Some(Job::new("lessor-space", || {}));
        }
        let database = self.database.clone();
        database.take_trim().then(|| {
            Job::new("lessor-trim", move || {
                if let Err(error) = trim(&database, now.0) {
                    tracing::warn!(%error, "history could not be trimmed; the next snapshot tries again");
                }
            })
        })
    }
}

impl Drop for PostgresLedger {
    /// The last owner may be an asynchronous task, where a runtime must not be waited for.
    fn drop(&mut self) {
        // Without a writer, readers follow whoever writes.
        self.database.set_last_durable(None);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        // The next owner does not wait until all batches and their rows are freed.
        let recent = self.appender.take_recent();
        let _ = std::thread::Builder::new().name("lessor-free".into()).spawn(move || drop(recent));
    }
}

/// The epoch of a batch with which a node takes over.
pub(super) fn epoch_of(batch: &Batch) -> Option<u64> {
    batch.records().find_map(|(_, bytes)| match record::decode(bytes).ok()?.event {
        Event::OwnerTookOver(event) => Some(event.epoch),
        _ => None,
    })
}
