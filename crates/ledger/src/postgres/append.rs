//! The writer's session: appends, the resolution of appends whose answer was lost, and confirmations.

use std::time::Duration;

use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;

use super::Error;
use super::batch_row::{BatchRow, Place};
use super::connection::Session;
use super::kept::{Kept, Standing};
use super::recent::{Compared, Recent};
use super::schema::read_cluster;
use super::shared::Database;
use super::tables::{Statements, TableRows};
use crate::{AppendError, Position, Refusal};

/// The wait after the first failure in a row, and the longest.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const MAX_RETRY: Duration = Duration::from_secs(1);

/// Whether the writer's last batch is still the last one, and whether commits wait for replicas.
const CONFIRM: &str = "SELECT EXISTS (SELECT 1 FROM lessor.batch WHERE shard = $1 AND first = $2 AND link = $3) \
    AND NOT EXISTS (SELECT 1 FROM lessor.batch WHERE shard = $1 AND first >= $4), \
    current_setting('synchronous_standby_names') <> ''";

/// A commit of our own. When it returns without a warning, everything that was committed before it is as durable as the
/// server promises.
const BARRIER: &str =
    "INSERT INTO lessor.node (node) VALUES ($1) ON CONFLICT (node) DO UPDATE SET beat = node.beat";

const COMPARE: &str =
    "SELECT first, next, link FROM lessor.batch WHERE shard = $1 AND first >= $2 ORDER BY first LIMIT $3";

/// A connection for appends, with its statements.
struct Open {
    session: Session,
    statements: Statements,
    confirm: Statement,
    barrier: Statement,
}

/// Appends batches, whatever happens to connections and servers in between.
pub(super) struct Writer {
    database: Database,
    open: Option<Open>,
    pub(super) recent: Recent,
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

impl From<tokio_postgres::Error> for Stop {
    fn from(error: tokio_postgres::Error) -> Stop {
        Stop::Failed(error.into())
    }
}

impl Writer {
    pub(super) fn new(database: Database, last: Place) -> Writer {
        Writer { database, open: None, recent: Recent::new(last) }
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
                Err(Stop::Failed(error)) => self.recover(error, &mut wait).await?,
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
        if self.open.is_none() {
            self.reopen().await?;
            // An earlier attempt may have been committed although its answer was lost.
            if self.repair(Some(row)).await? {
                return Ok(Step::Done);
            }
        }
        let Some(open) = &self.open else { return Ok(Step::Again) };
        match open.insert(&self.database, before, row).await {
            Ok(1) => Ok(Step::Done),
            // The batch before it is not there, or another one took the position.
            Ok(_) => self.repair(Some(row)).await.map(step),
            Err(error) if error.is_taken() => self.repair(Some(row)).await.map(step),
            Err(error) => Err(error.into()),
        }
    }

    async fn try_confirm(&mut self) -> Result<Step, Stop> {
        if self.open.is_none() {
            self.reopen().await?;
        }
        let Some(open) = &self.open else { return Ok(Step::Again) };
        let last = self.recent.last();
        let (first, next, link) = (last.first.0 as i64, last.next.0 as i64, &last.link.0[..]);
        let shard = self.database.shard();
        let row = open.session.client.query_one(&open.confirm, &[&shard, &first, &link, &next]).await?;
        let (is_last, has_replicas): (bool, bool) = (row.get(0), row.get(1));
        if !is_last {
            self.repair(None).await?;
            return Ok(Step::Again);
        }
        // A primary that was replaced still answers reads. It cannot commit.
        if has_replicas {
            open.barrier(&self.database.options().node).await?;
        }
        Ok(Step::Done)
    }

    async fn reopen(&mut self) -> Result<(), Stop> {
        let session = Session::connect(self.database.server()).await?;
        let found = read_cluster(&session.client).await?;
        if found != self.database.cluster() {
            return Err(Error::Refused("the database now belongs to another cluster".to_owned()).into());
        }
        let statements = Statements::prepare(&session).await?;
        let confirm = session.client.prepare(CONFIRM).await?;
        let barrier = session.client.prepare(BARRIER).await?;
        self.open = Some(Open { session, statements, confirm, barrier });
        Ok(())
    }

    /// Compares the end of the database with what we know, and appends again what a failover has undone. Says whether
    /// `row` was found and is durable.
    async fn repair(&mut self, row: Option<&BatchRow>) -> Result<bool, Stop> {
        let Some(open) = &self.open else { return Ok(false) };
        let (shard, last) = (self.database.shard(), self.recent.last());
        match self.recent.compare(&open.stored_batches(shard, &self.recent).await?) {
            Compared::Same => Ok(false),
            Compared::Continued(place) if row.is_some_and(|row| row.place == place) => {
                open.barrier(&self.database.options().node).await?;
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
                open.insert_again(&self.database, &self.recent.after(after)).await?;
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
            if self.open.is_none() {
                self.reopen().await?;
            }
            let Some(open) = &self.open else { return Ok(false) };
            let last = self.recent.last();
            match self.recent.compare(&open.stored_batches(self.database.shard(), &self.recent).await?) {
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
                    open.insert_again(&self.database, &lost).await?;
                }
                Compared::Forked { at } if at >= durable => self.recent.truncate(at),
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
        tokio::time::sleep(*wait).await;
        *wait = (*wait * 2).min(MAX_RETRY);
    }
}

fn step(is_durable: bool) -> Step {
    if is_durable { Step::Done } else { Step::Again }
}

fn fenced(last: Place, expected: Position) -> Refusal {
    Refusal::Fenced { expected, found: last.next }
}

impl Open {
    /// Inserts a row and returns how many were inserted: none when the row before is not there. A row that came with a
    /// warning counts only after a barrier.
    async fn insert(&self, database: &Database, before: Place, row: &BatchRow) -> Result<u64, Error> {
        let (first, next) = (row.place.first.0 as i64, row.place.next.0 as i64);
        let (link, body) = (&row.place.link.0[..], &row.body[..]);
        let (before_first, before_link) = (before.first.0 as i64, &before.link.0[..]);
        let shard = database.shard();
        let batch: [&(dyn ToSql + Sync); 10] = [
            &shard,
            &first,
            &next,
            &row.at,
            &row.epoch,
            &link,
            &row.codec,
            &body,
            &before_first,
            &before_link,
        ];
        self.session.take_warning();
        let append =
            async |rows: Option<&TableRows>| self.statements.append(&self.session, &batch, rows).await;
        let inserted = match append(row.rows.as_deref()).await {
            // The server refuses a value of the tables. The ledger matters more.
            Err(error) if error.is_unusable_value() && row.rows.is_some() => {
                tracing::error!(%error, position = first, "the tables cannot hold all content of a batch");
                append(row.rows.as_deref().map(TableRows::without_json).as_ref()).await
            }
            inserted => inserted,
        };
        let inserted = match inserted {
            Err(error) if error.is_of_tables() && row.rows.is_some() => {
                tracing::error!(%error, position = first, "the tables cannot be written; run `lessor tables rebuild` later");
                append(None).await?
            }
            inserted => inserted?,
        };
        if self.session.take_warning() && inserted == 1 {
            self.barrier(&database.options().node).await?;
        }
        Ok(inserted)
    }

    async fn barrier(&self, node: &str) -> Result<(), Error> {
        loop {
            self.session.take_warning();
            self.session.client.execute(&self.barrier, &[&node]).await?;
            if !self.session.take_warning() {
                return Ok(());
            }
        }
    }

    /// Inserts batches that were lost, in order, until somebody else is faster.
    async fn insert_again(&self, database: &Database, lost: &[(Place, BatchRow)]) -> Result<(), Error> {
        for (before, row) in lost {
            match self.insert(database, *before, row).await {
                Ok(1) => {}
                Ok(_) => break,
                Err(error) if error.is_taken() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn stored_batches(&self, shard: i32, recent: &Recent) -> Result<Vec<Place>, Error> {
        stored_batches(&self.session, shard, recent).await
    }
}

/// What the database holds from the oldest batch on that we know, and one batch more.
async fn stored_batches(session: &Session, shard: i32, recent: &Recent) -> Result<Vec<Place>, Error> {
    let limit = recent.len() as i64 + 2;
    let from = recent.base().first.0 as i64;
    let rows = session.client.query(COMPARE, &[&shard, &from, &limit]).await?;
    rows.iter().map(Place::read).collect()
}

/// How the database stands to the batches that a standby holds.
pub fn standing(database: &Database, kept: &Kept) -> Result<Standing, Error> {
    let Some((recent, durable)) = kept.batches() else { return Ok(Standing::Whole) };
    let shard = database.shard();
    database.run(move |session| async move {
        let stored = stored_batches(&session, shard, &recent).await?;
        Ok(recent.compare(&stored).standing(durable))
    })
}
