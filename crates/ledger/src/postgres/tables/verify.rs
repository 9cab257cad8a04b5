//! Compares the tables with the ledger, row by row.

use std::collections::BTreeMap;

use authority::{Position, State, TaskId};
use tokio_postgres::types::ToSql;

use super::columns::{ATTEMPTS, Column, JOBS};
use super::rebuild::{CHUNK, chunk, ids, task_id};
use super::replay::{despite_trims, oldest, replay};
use super::rows::{Table, TableRows};
use super::statements::unnest;
use crate::postgres::connection::Session;
use crate::postgres::{Database, Error, PostgresReader};
use crate::{Changes, RecoveryError};

/// So many differences are reported, and all are counted.
const MAX_REPORTED: usize = 1_000;

/// How the tables compare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// The position that the tables are at.
    pub position: Position,
    /// The last position of the ledger at that moment.
    pub ledger: Position,
    pub jobs: usize,
    pub attempts: usize,
    pub count: usize,
    /// The first of the differences.
    pub differences: Vec<Difference>,
}

/// A row that is not what the ledger says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub task: TaskId,
    /// The number of an attempt, for a row of `job_attempts`.
    pub attempt: Option<u32>,
    pub what: WhatDiffers,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhatDiffers {
    Missing,
    Unexpected,
    /// The columns that differ.
    Columns(Vec<String>),
}

impl Verified {
    fn add(&mut self, task: TaskId, attempt: Option<u32>, what: WhatDiffers) {
        self.count += 1;
        if self.differences.len() < MAX_REPORTED {
            self.differences.push(Difference { task, attempt, what });
        }
    }
}

/// Compares every row of a shard with the state at the position of the tables, and every attempt that ended since the
/// oldest record that is kept. Reads one moment of the database, whatever happens meanwhile.
pub fn verify(database: &Database) -> Result<Verified, RecoveryError> {
    let reader = PostgresReader::new(database.clone());
    let moment = Moment::open(database)?;
    let shard = database.shard();
    let (position, ledger) = moment.run(async |session| {
        session.client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let sql = "SELECT position, ledger_position FROM lessor.projected WHERE shard = $1";
        let row = session.query_one(sql, &[&shard]).await?;
        Ok((Position(row.get::<_, i64>(0) as u64), Position(row.get::<_, i64>(1) as u64)))
    })?;
    let (begin, recovery, noted) = despite_trims(&reader, || {
        let (base, mut noted) = (oldest(&reader)?, Changes::default());
        let begin = base.state().position();
        Ok((begin, replay(base, &reader, position, Some(&mut noted))?, noted))
    })?;
    let state = recovery.state();
    if state.position() != position {
        let why = format!(
            "the tables are at position {position}, and the ledger knows nothing before {begin}; rebuild them"
        );
        return Err(crate::Error::from(Error::Refused(why)).into());
    }
    let mut verified = Verified { position, ledger, jobs: state.len(), ..Verified::default() };
    for ids in ids(state).chunks(CHUNK) {
        let changes = chunk(state, ids, &noted);
        verified.attempts += changes.attempts.len();
        let rows = TableRows::of(&changes, database.table_context());
        let found = moment.run(async |session| differences(session, &rows).await);
        for (task, attempt, what) in found? {
            verified.add(task, attempt, what);
        }
    }
    let unexpected = moment.run(async |session| unexpected(session, shard, state, begin, &noted).await);
    for (task, attempt) in unexpected? {
        verified.add(task, attempt, WhatDiffers::Unexpected);
    }
    Ok(verified)
}

/// A session of its own, whose transaction sees one moment.
struct Moment {
    runtime: tokio::runtime::Runtime,
    session: Session,
}

impl Moment {
    fn open(database: &Database) -> Result<Moment, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let session = runtime.block_on(Session::connect(database.server()))?;
        Ok(Moment { runtime, session })
    }

    fn run<T>(&self, query: impl AsyncFnOnce(&Session) -> Result<T, Error>) -> Result<T, Error> {
        self.runtime.block_on(query(&self.session))
    }
}

type Found = (TaskId, Option<u32>, WhatDiffers);

async fn differences(session: &Session, rows: &TableRows) -> Result<Vec<Found>, Error> {
    let mut found = compare(session, "jobs", "stored.id = new.id", JOBS, &rows.jobs, false).await?;
    let key = "stored.job_id = new.job_id AND stored.attempt = new.attempt";
    found.extend(compare(session, "job_attempts", key, ATTEMPTS, &rows.attempts, true).await?);
    Ok(found)
}

async fn compare<T>(
    session: &Session,
    table: &str,
    key: &str,
    columns: &[Column<T>],
    expected: &Table,
    has_attempt: bool,
) -> Result<Vec<Found>, Error> {
    let id = columns[0].name;
    let attempt = if has_attempt { "new.attempt" } else { "NULL::int4" };
    let from = unnest(columns, 1, "new");
    let differing = columns.iter().map(|Column { name, .. }| {
        format!("CASE WHEN stored.{name} IS DISTINCT FROM new.{name} THEN '{name}' END")
    });
    let differing = differing.collect::<Vec<_>>().join(", ");
    let sql = format!(
        "SELECT * FROM (SELECT uuid_send(new.{id}), {attempt}, stored.{id} IS NULL AS missing, \
         array_remove(ARRAY[{differing}], NULL) AS differing \
         FROM {from} LEFT JOIN lessor.{table} AS stored ON {key}) AS compared WHERE differing <> '{{}}'"
    );
    let parameters: Vec<&(dyn ToSql + Sync)> = expected.parameters().collect();
    let rows = session.query(&sql, &parameters).await?;
    let found = rows.iter().filter_map(|row| {
        let what = if row.get(2) { WhatDiffers::Missing } else { WhatDiffers::Columns(row.get(3)) };
        Some((task_id(row.get(0))?, row.get::<_, Option<i32>>(1).map(|attempt| attempt as u32), what))
    });
    Ok(found.collect())
}

/// Rows of tasks and attempts that do not exist.
async fn unexpected(
    session: &Session,
    shard: i32,
    state: &State,
    begin: Position,
    noted: &Changes,
) -> Result<BTreeMap<TaskId, Option<u32>>, Error> {
    let rows = session.query("SELECT uuid_send(id) FROM lessor.jobs WHERE shard = $1", &[&shard]).await?;
    let jobs = rows.iter().filter_map(|row| task_id(row.get(0))).filter(|id| state.task(*id).is_none());
    let mut found: BTreeMap<_, _> = jobs.map(|id| (id, None)).collect();
    let sql = "SELECT uuid_send(job_id), attempts.attempt, attempts.position FROM lessor.job_attempts AS attempts \
               LEFT JOIN lessor.jobs ON jobs.id = job_id WHERE jobs.shard = $1 OR jobs.id IS NULL";
    for row in session.query(sql, &[&shard]).await? {
        let Some(id) = task_id(row.get(0)) else { continue };
        let (attempt, at) = (row.get::<_, i32>(1) as u32, row.get::<_, i64>(2) as u64);
        // Or it ended before the oldest record that is kept.
        let is_known = noted.attempts.contains_key(&(id, attempt))
            || (at <= begin.0 && state.task(id).is_some_and(|task| attempt <= task.attempt));
        if !is_known {
            found.insert(id, Some(attempt));
        }
    }
    Ok(found)
}
