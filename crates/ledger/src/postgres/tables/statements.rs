//! The statements that write the tables: one for whatever a batch holds.

use std::cell;
use std::fmt::Write;

use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;

use super::columns::{ATTEMPTS, Column, JOBS};
use super::rows::{Table, TableRows};
use crate::postgres::Error;
use crate::postgres::connection::Session;

/// Inserts a batch behind the batch that the writer knows. The lock on that row keeps a trim from removing it meanwhile.
const APPEND: &str = "INSERT INTO lessor.batch (shard, first, next, at, epoch, link, codec, body) \
    SELECT $1, $2, $3, $4, $5, $6, $7, $8 FROM (SELECT 1 FROM lessor.batch \
    WHERE shard = $1 AND first = $9 AND next = $2 AND link = $10 FOR KEY SHARE) AS before RETURNING 1";
/// The parameters of a batch. The tables' own follow.
const APPEND_PARAMETERS: usize = 10;

/// This batch comes without its changes: from here on the tables lack something.
const WITHOUT_CHANGES: &str = "UPDATE lessor.table_state SET since = NULL, complete = false, \
    position = CASE WHEN complete THEN $2 - 1 ELSE position END \
    WHERE shard = $1 AND since IS NOT NULL AND EXISTS (SELECT FROM gate)";

/// This batch comes with its changes. The tables lack nothing more if they lacked nothing before.
const WITH_CHANGES: &str = "UPDATE lessor.table_state SET since = $2, complete = position = $2 - 1 \
    WHERE shard = $1 AND since IS NULL AND EXISTS (SELECT FROM gate)";

/// Moves the position of tables that follow. Another follower may have moved it. They never get ahead of the ledger, of which
/// a failover may have undone records that are not appended again yet.
const FOLLOW: &str = "UPDATE lessor.table_state SET position = $3 \
    WHERE shard = $1 AND position BETWEEN $2 AND $3 AND since IS NULL AND $3 < (SELECT next FROM lessor.batch \
    WHERE shard = $1 ORDER BY first DESC LIMIT 1) RETURNING 1";
const FOLLOW_PARAMETERS: usize = 3;

const DELETE_CREATED: &str = "DELETE FROM lessor.inbox WHERE id = ANY(";

/// The statements of a session.
pub(in crate::postgres) struct Statements {
    with_changes: Statement,
    without_changes: Statement,
    /// A batch that changes nothing else, after the tables are known to lack something.
    batch_alone: Statement,
    /// The last batch of this session came without its changes. Only batches with changes end that, and only the owner appends them.
    tables_lack: cell::Cell<bool>,
}

impl Statements {
    pub(in crate::postgres) async fn prepare(session: &Session) -> Result<Statements, Error> {
        let inbox = APPEND_PARAMETERS + 1;
        let without_changes = format!(
            "WITH gate AS ({APPEND}), state AS ({WITHOUT_CHANGES}), \
             inbox AS ({DELETE_CREATED}${inbox}::uuid[]) AND EXISTS (SELECT FROM gate)) SELECT count(*) FROM gate"
        );
        let (tables, next) = write_tables(inbox, Update::Mutable);
        let with_changes = format!(
            "WITH gate AS ({APPEND}), state AS ({WITH_CHANGES}), {tables}, \
             inbox AS ({DELETE_CREATED}${next}::uuid[]) AND EXISTS (SELECT FROM gate)) SELECT count(*) FROM gate"
        );
        Ok(Statements {
            with_changes: session.client.prepare(&with_changes).await?,
            without_changes: session.client.prepare(&without_changes).await?,
            batch_alone: session.client.prepare(APPEND).await?,
            tables_lack: cell::Cell::new(false),
        })
    }

    /// Inserts a batch with what it changes, and returns how many batches were inserted: none when the batch before is not
    /// there.
    pub(in crate::postgres) async fn append(
        &self,
        session: &Session,
        batch: &[&(dyn ToSql + Sync)],
        rows: Option<&TableRows>,
    ) -> Result<u64, Error> {
        let whole = rows.filter(|rows| rows.is_whole);
        let none = Vec::new();
        let created = rows.map_or(&none, |rows| &rows.created);
        if whole.is_none() && created.is_empty() && self.tables_lack.get() {
            return Ok(session.client.execute(&self.batch_alone, batch).await?);
        }
        let mut parameters = batch.to_vec();
        let statement = match whole {
            Some(rows) => {
                parameters.extend(rows.parameters());
                &self.with_changes
            }
            None => &self.without_changes,
        };
        parameters.push(created);
        let row = session.client.query_one(statement, &parameters).await?;
        let inserted = row.get::<_, i64>(0) as u64;
        self.tables_lack.set(whole.is_none() && inserted > 0);
        Ok(inserted)
    }
}

/// Applies a change to tables that follow, from one position to another. Says whether they were at the first.
pub(super) async fn follow(
    session: &Session,
    shard: i32,
    (from, to): (i64, i64),
    rows: &TableRows,
) -> Result<bool, Error> {
    let (tables, _) = write_tables(FOLLOW_PARAMETERS + 1, Update::Mutable);
    let statement = format!("WITH gate AS ({FOLLOW}), {tables} SELECT count(*) FROM gate");
    let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&shard, &from, &to];
    parameters.extend(rows.parameters());
    Ok(session.query_one(&statement, &parameters).await?.get::<_, i64>(0) == 1)
}

/// Writes complete rows, but leaves newer ones as they are.
pub(super) async fn restore(session: &Session, rows: &TableRows) -> Result<(), Error> {
    let (tables, _) = write_tables(1, Update::UnlessNewer);
    let statement = format!("WITH gate AS (SELECT 1), {tables} SELECT count(*) FROM gate");
    session.query_one(&statement, &rows.parameters().collect::<Vec<_>>()).await?;
    Ok(())
}

/// What happens to a row that exists.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Update {
    /// It gets the columns that can change.
    Mutable,
    /// It gets all columns, unless it is newer.
    UnlessNewer,
}

/// The part that writes and deletes rows if `gate` has a row. Its parameters begin with `$first`; returns the number of the
/// next one.
fn write_tables(first: usize, update: Update) -> (String, usize) {
    let attempts = first + JOBS.len();
    let purged = attempts + ATTEMPTS.len();
    let jobs = upsert("jobs", "id", JOBS, first, update);
    let ended = upsert("job_attempts", "job_id, attempt", ATTEMPTS, attempts, update);
    let sql = format!(
        "job AS ({jobs}), ended AS ({ended}), \
         purged AS (DELETE FROM lessor.jobs WHERE id = ANY(${purged}::uuid[]) AND EXISTS (SELECT FROM gate)), \
         purged_attempts AS (DELETE FROM lessor.job_attempts \
         WHERE job_id = ANY(${purged}::uuid[]) AND EXISTS (SELECT FROM gate))"
    );
    (sql, purged + 1)
}

fn upsert<T>(table: &str, key: &str, columns: &[Column<T>], first: usize, update: Update) -> String {
    let set = columns.iter().filter(|column| !key.split(", ").any(|key| key == column.name));
    let set: Vec<_> = set
        .filter(|column| update == Update::UnlessNewer || !column.is_fixed)
        .map(|Column { name, is_fixed, .. }| match update {
            Update::UnlessNewer if !is_fixed => format!(
                "{name} = CASE WHEN {table}.position > excluded.position THEN {table}.{name} ELSE excluded.{name} END"
            ),
            _ => format!("{name} = excluded.{name}"),
        })
        .collect();
    let mut names = columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
    let from = unnest(columns, first, "new");
    let set = set.join(", ");
    let _ = write!(names, ") SELECT new.* FROM {from}, gate ON CONFLICT ({key}) DO UPDATE SET {set}");
    format!("INSERT INTO lessor.{table} ({names}")
}

/// The parameters from `$first` on as a relation.
pub(super) fn unnest<T>(columns: &[Column<T>], first: usize, alias: &str) -> String {
    let arrays = columns.iter().zip(first..).map(|(column, n)| format!("${n}::{}[]", column.sql));
    let names = columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
    format!("unnest({}) AS {alias}({names})", arrays.collect::<Vec<_>>().join(", "))
}

impl TableRows {
    /// In the order of [`write_tables`].
    fn parameters(&self) -> impl Iterator<Item = &(dyn ToSql + Sync)> {
        self.jobs.parameters().chain(self.attempts.parameters()).chain([&self.purged as &(dyn ToSql + Sync)])
    }
}

impl Table {
    /// In the order of the columns.
    pub(super) fn parameters(&self) -> impl Iterator<Item = &(dyn ToSql + Sync)> {
        self.0.iter().map(|cells| cells as &(dyn ToSql + Sync))
    }
}
