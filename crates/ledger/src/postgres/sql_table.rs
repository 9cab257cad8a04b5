//! The table of batches in PostgreSQL, over the writer's own session.

use std::time::Duration;

use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;

use super::Error;
use super::batch_row::{BatchRow, Place};
use super::batch_table::{BatchTable, End, Inserted};
use super::connection::Session;
use super::kept::{Kept, Standing};
use super::schema::read_cluster;
use super::shared::Database;
use super::tables::{Statements, TableRows};
use crate::Position;

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
pub(super) struct Open {
    session: Session,
    statements: Statements,
    confirm: Statement,
    barrier: Statement,
}

/// The table of the database's shard.
pub(super) struct SqlTable(pub Database);

impl BatchTable for SqlTable {
    type Session = Open;

    async fn connect(&self) -> Result<Open, Error> {
        let session = Session::connect(self.0.server()).await?;
        let found = read_cluster(&session.client).await?;
        if found != self.0.cluster() {
            return Err(Error::Refused("the database now belongs to another cluster".to_owned()));
        }
        let statements = Statements::prepare(&session).await?;
        let confirm = session.client.prepare(CONFIRM).await?;
        let barrier = session.client.prepare(BARRIER).await?;
        Ok(Open { session, statements, confirm, barrier })
    }

    async fn insert(&self, open: &Open, before: Place, row: &BatchRow) -> Result<Inserted, Error> {
        match open.insert(self.0.shard(), before, row).await {
            Ok(1) => Ok(Inserted::Stored { is_warned: open.session.take_warning() }),
            Ok(_) => Ok(Inserted::NotBehind),
            Err(error) if error.is_taken() => Ok(Inserted::Taken),
            Err(error) => Err(error),
        }
    }

    async fn stored(&self, open: &Open, from: Position, limit: usize) -> Result<Vec<Place>, Error> {
        stored(&open.session, self.0.shard(), from, limit).await
    }

    async fn end(&self, open: &Open, last: Place) -> Result<End, Error> {
        let (first, next, link) = (last.first.0 as i64, last.next.0 as i64, &last.link.0[..]);
        let shard = self.0.shard();
        let row = open.session.client.query_one(&open.confirm, &[&shard, &first, &link, &next]).await?;
        Ok(End { is_last: row.get(0), has_replicas: row.get(1) })
    }

    async fn commit(&self, open: &Open) -> Result<bool, Error> {
        open.session.take_warning();
        open.session.client.execute(&open.barrier, &[&self.0.options().node]).await?;
        Ok(open.session.take_warning())
    }

    async fn pause(&self, pause: Duration) {
        tokio::time::sleep(pause).await;
    }
}

impl Open {
    /// When the server was started.
    pub(super) fn server(&self) -> i64 {
        self.session.server
    }

    /// Whether the server answers, and takes writes.
    pub(super) async fn is_usable(&self) -> bool {
        let row = self.session.query_one("SELECT pg_is_in_recovery()", &[]).await;
        row.is_ok_and(|row| !row.get::<_, bool>(0))
    }

    /// Returns how many rows were inserted: none when the row before is not there.
    async fn insert(&self, shard: i32, before: Place, row: &BatchRow) -> Result<u64, Error> {
        let (first, next) = (row.place.first.0 as i64, row.place.next.0 as i64);
        let (link, body) = (&row.place.link.0[..], &row.body[..]);
        let (before_first, before_link) = (before.first.0 as i64, &before.link.0[..]);
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
        match inserted {
            Err(error) if error.is_of_tables() && row.rows.is_some() => {
                tracing::error!(%error, position = first, "the tables cannot be written; run `lessor tables rebuild` later");
                append(None).await
            }
            inserted => inserted,
        }
    }
}

async fn stored(session: &Session, shard: i32, from: Position, limit: usize) -> Result<Vec<Place>, Error> {
    let rows = session.query(COMPARE, &[&shard, &(from.0 as i64), &(limit as i64)]).await?;
    rows.iter().map(Place::read).collect()
}

/// How the database stands to the batches that a standby holds.
pub fn standing(database: &Database, kept: &Kept) -> Result<Standing, Error> {
    let Some((from, limit)) = kept.compared() else { return Ok(Standing::Whole) };
    let shard = database.shard();
    let stored = database.run(move |session| async move { stored(&session, shard, from, limit).await })?;
    Ok(kept.standing(&stored))
}
