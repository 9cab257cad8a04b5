//! Rebuilds the tables from the ledger, while the cluster runs.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use authority::{Event, Position, State, TaskId};

use super::cell::Cell;
use super::replay::{despite_trims, oldest, replay};
use super::rows::TableRows;
use super::statements::restore;
use crate::changes::ChangedTask;
use crate::postgres::{Database, Error, PostgresReader};
use crate::{Changes, Reader, RecoveryError, record};

/// How many tasks are written or compared at once.
pub(super) const CHUNK: usize = 500;

/// What a rebuild has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// The tables hold every record up to here, and where the owner writes them, every later record.
    pub position: Position,
    pub jobs: usize,
    pub attempts: usize,
    /// Rows of tasks that do not exist.
    pub deleted: usize,
}

/// Writes every row of a shard again. Rows that the owner changes meanwhile stay as they are. Attempts that ended before
/// the oldest record that is kept are not touched.
pub fn rebuild(database: &Database) -> Result<Rebuilt, RecoveryError> {
    let reader = PostgresReader::new(database.clone());
    let end = Position(reader.next()?.0 - 1);
    let (recovery, noted) = despite_trims(&reader, || {
        let mut noted = Changes::default();
        Ok((replay(oldest(&reader)?, &reader, end, Some(&mut noted))?, noted))
    })?;
    let state = recovery.state();
    let position = state.position();
    let mut attempts = 0;
    for ids in ids(state).chunks(CHUNK) {
        let changes = chunk(state, ids, &noted);
        attempts += changes.attempts.len();
        let rows = TableRows::of(&changes, database.table_context());
        database.run(move |session| async move { restore(&session, &rows).await })?;
    }
    let deleted = delete_unknown(database, state, position)?;
    delete_purged(database, &reader, position)?;
    let (shard, at) = (database.shard(), position.0 as i64);
    database.run(move |session| async move {
        let sql = "UPDATE lessor.table_state SET complete = since IS NOT NULL AND since <= $2::int8 + 1, \
                   position = greatest(position, $2) WHERE shard = $1";
        session.execute(sql, &[&shard, &at]).await
    })?;
    Ok(Rebuilt { position, jobs: state.len(), attempts, deleted })
}

/// All tasks, in the order in which rows are locked.
pub(super) fn ids(state: &State) -> Vec<TaskId> {
    let tasks = (0..state.slots()).filter_map(|slot| state.in_slot(slot));
    let mut ids: Vec<_> = tasks.map(|(_, task)| task.id).collect();
    ids.sort_unstable();
    ids
}

/// Some tasks as if they were created now, with those of their attempts that were noted.
pub(super) fn chunk(state: &State, ids: &[TaskId], noted: &Changes) -> Changes {
    let mut changes = Changes::default();
    for &id in ids {
        if let (Some(task), Some(queue)) = (state.task(id), state.queue_of(id)) {
            changes.created.insert(id);
            changes.tasks.insert(id, ChangedTask { queue: queue.clone(), task: task.clone() });
        }
        let attempts = noted.attempts.range((id, 0)..=(id, u32::MAX));
        changes.attempts.extend(attempts.map(|(key, attempt)| (*key, attempt.clone())));
    }
    changes
}

/// The tasks that have a row up to a position.
pub(super) fn rows_up_to(database: &Database, position: Position) -> Result<Vec<TaskId>, Error> {
    let (shard, at) = (database.shard(), position.0 as i64);
    database.run(move |session| async move {
        let sql = "SELECT uuid_send(id) FROM lessor.jobs WHERE shard = $1 AND position <= $2";
        let rows = session.query(sql, &[&shard, &at]).await?;
        Ok(rows.iter().filter_map(|row| task_id(row.get(0))).collect())
    })
}

pub(super) fn task_id(bytes: &[u8]) -> Option<TaskId> {
    Some(TaskId(u128::from_be_bytes(bytes.try_into().ok()?)))
}

fn delete_unknown(database: &Database, state: &State, position: Position) -> Result<usize, Error> {
    let unknown = rows_up_to(database, position)?.into_iter().filter(|id| state.task(*id).is_none());
    let unknown: BTreeSet<TaskId> = unknown.collect();
    let deleted = unknown.len();
    delete(database, unknown, position)?;
    let at = position.0 as i64;
    let orphans = database.run(move |session| async move {
        let sql = "DELETE FROM lessor.job_attempts AS attempts WHERE position <= $1 \
                   AND NOT EXISTS (SELECT FROM lessor.jobs WHERE id = attempts.job_id)";
        session.execute(sql, &[&at]).await
    })?;
    Ok(deleted + orphans as usize)
}

/// A task that was purged while its row was written would have a row for ever.
fn delete_purged(database: &Database, reader: &PostgresReader, from: Position) -> Result<(), RecoveryError> {
    let (mut purged, mut failed) = (BTreeSet::new(), Ok(()));
    let end = reader.next()?;
    if from.next() < end {
        reader.read(from.next(), end, &mut |position, bytes| match record::decode(bytes) {
            Ok(record) => {
                match record.event {
                    Event::TasksPurged(event) => purged.extend(event.tasks),
                    Event::TaskCreated(event) => drop(purged.remove(&event.task)),
                    _ => {}
                }
                ControlFlow::Continue(())
            }
            Err(error) => {
                failed = Err(RecoveryError::Record(position, error));
                ControlFlow::Break(())
            }
        })?;
    }
    failed?;
    Ok(delete(database, purged, end)?)
}

fn delete(database: &Database, tasks: BTreeSet<TaskId>, position: Position) -> Result<(), Error> {
    let tasks: Vec<_> = tasks.into_iter().map(Cell::from).collect();
    let at = position.0 as i64;
    for tasks in tasks.chunks(CHUNK) {
        let tasks = tasks.to_vec();
        database.run(move |session| async move {
            let sql = "WITH job AS (DELETE FROM lessor.jobs WHERE id = ANY($1::uuid[]) AND position <= $2 RETURNING id) \
                       DELETE FROM lessor.job_attempts USING job WHERE job_id = job.id";
            session.execute(sql, &[&tasks, &at]).await
        })?;
    }
    Ok(())
}
