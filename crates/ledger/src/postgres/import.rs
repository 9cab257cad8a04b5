//! Fills a new database with the history of another ledger.
//!
//! The row that makes a database a cluster comes last. Until then every start refuses the database as incomplete, and
//! another import begins again from nothing.

use std::sync::Arc;

use futures_util::future::try_join_all;
use tokio_postgres::Client;

use super::batch_row::{BatchRow, Place};
use super::connection::Session;
use super::ledger::epoch_of;
use super::offsets::OffsetRows;
use super::reader::PostgresReader;
use super::schema::{self, Cluster, SCHEMA_LOCK};
use super::shared::{Database, Pending};
use super::snapshot::Sink;
use super::{Error, Options, Server};
use crate::{Batch, Error as LedgerError, Link, Position, Refusal, SnapshotError, SnapshotSink};

/// Rows of one transaction, and their size.
const MAX_ROWS: usize = 512;
const MAX_BYTES: usize = 4 << 20;

/// The server may notice the end of an import that was killed a moment later.
const LOCK_WAIT_MS: u32 = 10_000;

/// A database that is being filled.
pub struct Import {
    database: Database,
    last: Place,
    epoch: u64,
    rows: Vec<BatchRow>,
    bytes: usize,
    /// The rows that are being inserted while others are collected.
    in_flight: Option<Pending<()>>,
}

impl Import {
    /// Begins in an empty database, or anew in one in which an import was cut off. The first batch will start at `first`.
    pub fn begin(server: Server, cluster: Cluster, first: Position) -> Result<Import, LedgerError> {
        let before = Position(first.0.saturating_sub(1));
        let last = Place { first: before, next: first, link: Link::origin(cluster.id, 0) };
        let options = Options::new("", cluster.key_print);
        let database = Database::open(server, options, move |mut session| async move {
            prepare(&mut session.client, last).await?;
            Ok((session, cluster))
        })?;
        Ok(Import { database, last, epoch: 0, rows: Vec::new(), bytes: 0, in_flight: None })
    }

    /// Takes the next batch. It is stored soon.
    pub fn append(&mut self, batch: &Batch) -> Result<(), LedgerError> {
        if batch.first() != self.last.next {
            let refusal = Refusal::Fenced { expected: self.last.next, found: batch.first() };
            return Err(Error::Refused(refusal.to_string()).into());
        }
        self.epoch = epoch_of(batch).unwrap_or(self.epoch);
        let row = BatchRow::new(batch, self.last.link, self.epoch);
        self.last = row.place;
        self.bytes += row.body.len();
        self.rows.push(row);
        if self.rows.len() >= MAX_ROWS || self.bytes >= MAX_BYTES {
            self.send()?;
        }
        Ok(())
    }

    /// Returns when every batch so far is stored.
    pub fn flush(&mut self) -> Result<(), LedgerError> {
        self.send()?;
        Ok(self.in_flight.take().map_or(Ok(()), Pending::finish)?)
    }

    fn send(&mut self) -> Result<(), Error> {
        self.in_flight.take().map_or(Ok(()), Pending::finish)?;
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        if !rows.is_empty() {
            let shard = self.database.shard();
            self.in_flight = Some(self.database.begin(move |session| insert(session, shard, rows)));
        }
        Ok(())
    }

    /// The epoch of the last owner among the batches.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn begin_snapshot(&self, begin: Position) -> Result<Box<dyn SnapshotSink>, SnapshotError> {
        Ok(Box::new(Sink::begin(&self.database, begin).map_err(LedgerError::from)?))
    }

    pub fn offsets(&self) -> OffsetRows {
        OffsetRows::new(self.database.clone())
    }

    /// Reads what is stored so far.
    pub fn reader(&self) -> PostgresReader {
        PostgresReader::new(self.database.clone())
    }

    /// Makes the database a cluster, which nodes can open.
    pub fn finish(mut self) -> Result<(), LedgerError> {
        self.flush()?;
        let cluster = self.database.cluster();
        Ok(self.database.run(move |session| async move {
            session.take_warning();
            schema::insert_cluster(&session.client, cluster).await?;
            if session.take_warning() {
                let refused = "PostgreSQL has warned at the last commit, so it may not be replicated; check the server, and \
                               compare both sides with `lessor log verify` before you use the database";
                return Err(Error::Refused(refused.to_owned()));
            }
            Ok(())
        })?)
    }
}

/// Creates the schema without the row that names the cluster, and the row before the first batch.
async fn prepare(client: &mut Client, before: Place) -> Result<(), Error> {
    // Held by the session: it ends with the import, whatever happens.
    client.batch_execute(&format!("SET lock_timeout = {LOCK_WAIT_MS}")).await?;
    if client.execute("SELECT pg_advisory_lock($1)", &[&SCHEMA_LOCK]).await.is_err() {
        let refused = "the database is being changed by another migration or initialization";
        return Err(Error::Refused(refused.to_owned()));
    }
    client.batch_execute("SET lock_timeout = 0").await?;
    let transaction = client.transaction().await?;
    if schema::has_schema(&transaction).await? {
        if schema::has_cluster(&transaction).await? {
            return Err(schema::holds_a_cluster());
        }
        transaction.batch_execute("DROP SCHEMA lessor CASCADE").await?;
    }
    schema::create_tables(&transaction).await?;
    schema::insert_origin(&transaction, 0, before).await?;
    transaction.commit().await?;
    Ok(())
}

async fn insert(session: Arc<Session>, shard: i32, rows: Vec<BatchRow>) -> Result<(), Error> {
    let client = &session.client;
    client.batch_execute("BEGIN").await?;
    let sql = "INSERT INTO lessor.batch (shard, first, next, at, epoch, link, codec, body) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let statement = client.prepare(sql).await?;
    let statement = &statement;
    let inserts = rows.iter().map(|row| async move {
        let (first, next) = (row.place.first.0 as i64, row.place.next.0 as i64);
        let (link, body) = (&row.place.link.0[..], &row.body[..]);
        client
            .execute(statement, &[&shard, &first, &next, &row.at, &row.epoch, &link, &row.codec, &body])
            .await
    });
    try_join_all(inserts).await?;
    client.batch_execute("COMMIT").await?;
    Ok(())
}
