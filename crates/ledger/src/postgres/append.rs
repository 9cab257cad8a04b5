//! The append protocol: appends, the resolution of appends whose answer was lost, repairs after a failover, and
//! confirmations.

use std::time::Duration;

use super::Error;
use super::batch_row::{BatchRow, Place};
use super::batch_table::{BatchTable, Inserted};
use super::recent::{Compared, Recent};
use super::rules;
use crate::{AppendError, Position, Refusal};

/// The wait after the first failure in a row, and the longest.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const MAX_RETRY: Duration = Duration::from_millis(500);

/// Appends batches, whatever happens to connections and servers in between.
pub(super) struct Writer<T: BatchTable> {
    table: T,
    open: Option<T::Session>,
    pub(super) recent: Recent,
    /// A batch was appended again without its rows in the tables, which this node does not know. Later rows may rest on them.
    pub(super) lacks_rows: bool,
}

/// What the database says about an append.
enum Step {
    Done,
    /// Something was repaired; try again.
    Again,
}

enum Stop {
    Refused(Refusal),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Error {
        match stop {
            Stop::Refused(Refusal::Forked { at }) => Error::Forked(at),
            Stop::Refused(refusal) => Error::Refused(refusal.to_string()),
            Stop::Failed(error) => error,
        }
    }
}

impl<T: BatchTable> Writer<T> {
    pub(super) fn new(table: T, last: Place) -> Writer<T> {
        Writer { table, open: None, recent: Recent::new(last), lacks_rows: false }
    }

    /// Begins with a session that is open already.
    pub(super) fn set_session(&mut self, session: T::Session) {
        self.open = Some(session);
    }

    pub(super) fn table(&self) -> &T {
        &self.table
    }

    /// Makes a batch durable, or says why it never will be. Waits for the database as long as necessary.
    pub(super) async fn append(&mut self, row: BatchRow) -> Result<(), AppendError> {
        let mut wait = FIRST_RETRY;
        loop {
            let before = self.recent.last();
            match self.try_append(before, &row).await {
                Ok(Step::Done) => {
                    self.recent.push(row);
                    return Ok(());
                }
                Ok(Step::Again) => {}
                Err(Stop::Refused(refusal)) => return Err(refusal.into()),
                Err(Stop::Failed(error)) => {
                    if rules::is_durable_without_answer() {
                        self.recent.push(row);
                        return Ok(());
                    }
                    self.recover(error, &mut wait).await?;
                }
            }
        }
    }

    /// Returns when nobody has appended after us, and every batch that we know to be durable still is.
    pub(super) async fn confirm(&mut self) -> Result<(), AppendError> {
        let mut wait = FIRST_RETRY;
        loop {
            match self.try_confirm().await {
                Ok(Step::Done) => return Ok(()),
                Ok(Step::Again) => {}
                Err(Stop::Refused(refusal)) => return Err(refusal.into()),
                Err(Stop::Failed(error)) => self.reconnect_later(error, &mut wait).await,
            }
        }
    }

    async fn try_append(&mut self, before: Place, row: &BatchRow) -> Result<Step, Stop> {
        // An earlier attempt may have been committed although its answer was lost.
        if self.reopen().await? && self.repair(Some(row)).await? {
            return Ok(Step::Done);
        }
        match self.insert(before, row).await? {
            Inserted::Stored { .. } => Ok(Step::Done),
            Inserted::NotBehind | Inserted::Taken => self.repair(Some(row)).await.map(step),
        }
    }

    async fn try_confirm(&mut self) -> Result<Step, Stop> {
        self.reopen().await?;
        let open = self.open.as_ref().ok_or(Error::Closed)?;
        let end = self.table.end(open, self.recent.last()).await?;
        if !end.is_last {
            self.repair(None).await?;
            return Ok(Step::Again);
        }
        // A primary that was replaced still answers reads. It cannot commit.
        if end.has_replicas {
            self.barrier().await?;
        }
        Ok(Step::Done)
    }

    /// Opens a session if there is none. Says whether it did.
    async fn reopen(&mut self) -> Result<bool, Error> {
        let is_new = self.open.is_none();
        if is_new {
            self.open = Some(self.table.connect().await?);
        }
        Ok(is_new)
    }

    /// Inserts a row. One that came with a warning counts only after a barrier.
    async fn insert(&self, before: Place, row: &BatchRow) -> Result<Inserted, Error> {
        let open = self.open.as_ref().ok_or(Error::Closed)?;
        let without_tables = if self.lacks_rows { row.without_tables() } else { None };
        let inserted = self.table.insert(open, before, without_tables.as_ref().unwrap_or(row)).await?;
        if let Inserted::Stored { is_warned } = inserted
            && rules::needs_barrier(is_warned)
        {
            self.barrier().await?;
        }
        Ok(inserted)
    }

    async fn barrier(&self) -> Result<(), Error> {
        let open = self.open.as_ref().ok_or(Error::Closed)?;
        while self.table.commit(open).await? {}
        Ok(())
    }

    /// Inserts batches that were lost, in order, until somebody else is faster.
    async fn insert_again(&mut self, lost: &[(Place, BatchRow)]) -> Result<(), Error> {
        for (before, row) in lost {
            self.lacks_rows |= !row.writes_tables();
            if !matches!(self.insert(*before, row).await?, Inserted::Stored { .. }) {
                break;
            }
        }
        Ok(())
    }

    /// Compares what the database holds from the oldest batch on that we know, and one batch more.
    async fn compare(&mut self) -> Result<Compared, Error> {
        let (from, limit) = self.recent.compared();
        let open = self.open.as_ref().ok_or(Error::Closed)?;
        let stored = self.table.stored(open, from, limit).await?;
        Ok(self.recent.compare(&stored))
    }

    /// Compares the end of the database with what we know, and appends again what a failover has undone. Says whether
    /// `row` was found and is durable.
    async fn repair(&mut self, row: Option<&BatchRow>) -> Result<bool, Stop> {
        let last = self.recent.last();
        match self.compare().await? {
            Compared::Same => Ok(false),
            Compared::Continued(place) if row.is_some_and(|row| rules::is_own(row.place == place)) => {
                if rules::needs_barrier_when_found() {
                    self.barrier().await?;
                }
                Ok(true)
            }
            Compared::Continued(place) => Err(Stop::Refused(fenced(last, place.next))),
            Compared::Trimmed { first } => Err(Stop::Refused(fenced(last, first))),
            Compared::Lost { after } => {
                tracing::warn!(
                    after = after.next.0 - 1,
                    up_to = last.next.0 - 1,
                    "PostgreSQL has lost batches that it had acknowledged; they are appended again"
                );
                let lost = self.recent.after(after);
                self.insert_again(&lost).await?;
                Ok(false)
            }
            Compared::Forked { at } => Err(self.forked(at)),
            Compared::Unknown { next } => Err(self.lost_for_good(next)),
        }
    }

    /// Appends again what this node holds and the database does not, before this node owns the ledger. Says whether the database
    /// ends with what the node holds then; another node may have gone on. Batches from `durable` on may never have been
    /// durable, so that another one in their place is no fork.
    pub(super) async fn restore(&mut self, durable: Position) -> Result<bool, Error> {
        loop {
            self.reopen().await?;
            let last = self.recent.last();
            match self.compare().await? {
                Compared::Same => return Ok(true),
                Compared::Continued(_) | Compared::Trimmed { .. } => return Ok(false),
                Compared::Lost { after } => {
                    let lost = self.recent.after(after);
                    tracing::warn!(
                        after = after.next.0 - 1,
                        up_to = last.next.0 - 1,
                        known_up_to = durable.0.saturating_sub(1),
                        batches = lost.len(),
                        "PostgreSQL lacks batches that this node has received from the owner; they are appended again"
                    );
                    self.insert_again(&lost).await?;
                }
                Compared::Forked { at } if rules::gives_way(at >= durable) => self.recent.truncate(at),
                Compared::Forked { at } => return Err(self.forked(at).into()),
                Compared::Unknown { next } => return Err(self.lost_for_good(next).into()),
            }
        }
    }

    fn forked(&self, at: Position) -> Stop {
        tracing::error!(
            at = at.0,
            known_up_to = self.recent.last().next.0 - 1,
            "PostgreSQL holds another history than this node: at this position another batch is stored than was acknowledged"
        );
        Stop::Refused(Refusal::Forked { at })
    }

    fn lost_for_good(&self, next: Position) -> Stop {
        tracing::error!(
            from = next.0,
            known_up_to = self.recent.last().next.0 - 1,
            "PostgreSQL has lost records that it had acknowledged, and this node does not hold them"
        );
        Stop::Refused(Refusal::Forked { at: next })
    }

    /// After a failure nothing is known; the next attempt begins with a new session. A full database is the caller's
    /// problem, everything else is waited for.
    async fn recover(&mut self, error: Error, wait: &mut Duration) -> Result<(), AppendError> {
        if error.is_full() {
            return Err(Refusal::NoSpace.into());
        }
        self.reconnect_later(error, wait).await;
        Ok(())
    }

    async fn reconnect_later(&mut self, error: Error, wait: &mut Duration) {
        if *wait > FIRST_RETRY {
            tracing::warn!(%error, "the database cannot be used; trying again");
        }
        self.open = None;
        self.table.pause(*wait).await;
        *wait = (*wait * 2).min(MAX_RETRY);
    }
}

fn step(is_durable: bool) -> Step {
    if is_durable { Step::Done } else { Step::Again }
}

fn fenced(last: Place, expected: Position) -> Refusal {
    Refusal::Fenced { expected, found: last.next }
}
