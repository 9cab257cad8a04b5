//! Trimming: removes snapshots and history that nothing needs any more, a few rows at a time.

use super::shared::Database;
use super::{Error, snapshot};
use crate::Position;

/// How many snapshots stay.
const SNAPSHOTS_KEPT: usize = 2;
/// Rows in one transaction: few, so that no lock is held for long.
const ROWS: i64 = 500;

/// Removes what is due. The last batch always stays: the next one is fenced by it.
pub(super) fn trim(database: &Database, now_ms: u64) -> Result<(), Error> {
    let mut snapshots = snapshot::list(database)?;
    let Some(surplus) = snapshots.len().checked_sub(SNAPSHOTS_KEPT) else { return Ok(()) };
    let kept = snapshots.split_off(surplus);
    for old in snapshots {
        remove_snapshot(database, old.name)?;
    }
    let Some(oldest) = kept.first() else { return Ok(()) };
    remove_leftovers(database)?;
    let floor = database.holds(|holds| holds.trim_limit(oldest.begin));
    remove_history(database, floor, now_ms)
}

fn remove_snapshot(database: &Database, id: String) -> Result<(), Error> {
    let shard = database.shard();
    database.run(move |session| async move {
        // The row first: what is without it is no snapshot.
        let sql = "DELETE FROM lessor.snapshot WHERE shard = $1 AND id = $2::text::uuid";
        session.execute(sql, &[&shard, &id]).await?;
        let sql = "DELETE FROM lessor.snapshot_block WHERE shard = $1 AND id = $2::text::uuid";
        session.execute(sql, &[&shard, &id]).await?;
        Ok(())
    })
}

/// Blocks of snapshots that a crash cut off. An hour is far longer than a snapshot takes.
fn remove_leftovers(database: &Database) -> Result<(), Error> {
    let shard = database.shard();
    database.run(move |session| async move {
        let sql = "DELETE FROM lessor.snapshot_block AS block WHERE shard = $1 AND made < now() - interval '1 hour' \
                   AND NOT EXISTS (SELECT 1 FROM lessor.snapshot WHERE shard = $1 AND id = block.id)";
        session.execute(sql, &[&shard]).await?;
        Ok(())
    })
}

/// Removes batches that end at or before `floor`, oldest first, as far as they are too old or too many.
fn remove_history(database: &Database, floor: Position, now_ms: u64) -> Result<(), Error> {
    let options = database.options();
    let (shard, floor) = (database.shard(), floor.0 as i64);
    let oldest_kept = i64::try_from(now_ms.saturating_sub(options.history_max_age_ms)).unwrap_or(i64::MAX);
    let max_bytes = i64::try_from(options.history_max_bytes).unwrap_or(i64::MAX);
    // The first batch that must stay: the sizes are counted from the newest batch back.
    let boundary = database.run(move |session| async move {
        let sql = "SELECT max(next) FROM (SELECT next, at, sum(length(body)) OVER (ORDER BY first DESC) AS bytes \
                   FROM lessor.batch WHERE shard = $1 AND next <= $2::int8 + 1) AS history \
                   WHERE at < $3 OR bytes > $4::int8";
        Ok(session.query_one(sql, &[&shard, &floor, &oldest_kept, &max_bytes]).await?.get::<_, Option<i64>>(0))
    })?;
    let Some(boundary) = boundary else { return Ok(()) };
    loop {
        let removed = database.run(move |session| async move {
            let sql = "DELETE FROM lessor.batch WHERE shard = $1 AND first IN (SELECT first FROM lessor.batch \
                       WHERE shard = $1 AND next <= $2 AND first < (SELECT max(first) FROM lessor.batch WHERE shard = $1) \
                       ORDER BY first LIMIT $3)";
            session.execute(sql, &[&shard, &boundary, &ROWS]).await
        })?;
        if removed == 0 {
            return Ok(());
        }
    }
}
