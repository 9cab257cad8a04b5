//! Snapshots as rows: the blocks first, and last the row that makes them a snapshot.

use tokio_postgres::types::ToSql;

use super::Error;
use super::batch_row::position;
use super::shared::Database;
use crate::{Error as LedgerError, Position, SnapshotError, SnapshotInfo, SnapshotSink, SnapshotSource};

/// PostgreSQL takes values of up to 1 GiB; a block is far smaller.
const MAX_BLOCK_BYTES: usize = 64 << 20;

/// A server that was failed over to may lack the last blocks, or have another history than the one that the snapshot sums up.
const FINISH: &str = "INSERT INTO lessor.snapshot (shard, id, begin_, end_, blocks, bytes) \
    SELECT $1, $2::text::uuid, $3, $4, $5::int4, $6 \
    WHERE (SELECT count(*) FROM lessor.snapshot_block WHERE shard = $1 AND id = $2::text::uuid) = $5::int4 \
    AND ($7::int8 IS NULL OR EXISTS (SELECT 1 FROM lessor.batch WHERE shard = $1 AND first = $7 AND link = $8))";
const UNFINISHED: &str =
    "PostgreSQL lacks blocks of the snapshot, or batches that it sums up: the database was failed over";
const UNOWNED: &str = "this node does not own the ledger any more";

pub(super) fn list(database: &Database) -> Result<Vec<SnapshotInfo>, Error> {
    let shard = database.shard();
    database.run(move |session| async move {
        let sql = "SELECT id::text, begin_, end_ FROM lessor.snapshot WHERE shard = $1 ORDER BY begin_, end_";
        let rows = session.query(sql, &[&shard]).await?;
        let info = |row: &tokio_postgres::Row| SnapshotInfo {
            name: row.get(0),
            begin: position(row.get(1)),
            end: position(row.get(2)),
        };
        Ok(rows.iter().map(info).collect())
    })
}

/// A snapshot that is being stored.
pub(super) struct Sink {
    database: Database,
    id: String,
    begin: Position,
    blocks: i32,
    bytes: i64,
    is_finished: bool,
    /// Whether a writer of this process appends meanwhile.
    has_writer: bool,
}

impl Sink {
    pub(super) fn begin(database: &Database, begin: Position) -> Result<Sink, Error> {
        let id = database.run(|session| async move {
            Ok(session.query_one("SELECT gen_random_uuid()::text", &[]).await?.get::<_, String>(0))
        })?;
        let has_writer = database.last_durable().is_some();
        Ok(Sink {
            database: database.clone(),
            id,
            begin,
            blocks: 0,
            bytes: 0,
            is_finished: false,
            has_writer,
        })
    }
}

impl SnapshotSink for Sink {
    fn write_block(&mut self, block: &[u8]) -> Result<(), SnapshotError> {
        if block.len() > MAX_BLOCK_BYTES {
            return Err(SnapshotError::BlockTooLarge(block.len()));
        }
        let (shard, id, n, body) = (self.database.shard(), self.id.clone(), self.blocks, block.to_vec());
        self.database
            .run(move |session| async move {
                let sql = "INSERT INTO lessor.snapshot_block (shard, id, n, crc, body) \
                           VALUES ($1, $2::text::uuid, $3, $4, $5)";
                let crc = i64::from(crc32c::crc32c(&body));
                session.execute(sql, &[&shard, &id, &n, &crc, &body]).await?;
                Ok(())
            })
            .map_err(LedgerError::from)?;
        self.blocks += 1;
        self.bytes += block.len() as i64;
        Ok(())
    }

    fn finish(mut self: Box<Self>, end: Position) -> Result<SnapshotInfo, SnapshotError> {
        SnapshotError::check(self.begin, end, self.database.readable())?;
        let (shard, id, begin) = (self.database.shard(), self.id.clone(), self.begin);
        let (blocks, bytes) = (self.blocks, self.bytes);
        // Known to be durable, and not before the end of the snapshot.
        let last = self.database.last_durable();
        if self.has_writer && last.is_none() {
            return Err(LedgerError::from(Error::Refused(UNOWNED.to_owned())).into());
        }
        self.database
            .run(move |session| async move {
                let (begin, end) = (begin.0 as i64, end.0 as i64);
                let first = last.map(|last| last.first.0 as i64);
                let link = last.map(|last| last.link.0.to_vec());
                let parameters: [&(dyn ToSql + Sync); 8] =
                    [&shard, &id, &begin, &end, &blocks, &bytes, &first, &link];
                match session.execute(FINISH, &parameters).await? {
                    0 => Err(Error::Refused(UNFINISHED.to_owned())),
                    _ => Ok(()),
                }
            })
            .map_err(LedgerError::from)?;
        self.is_finished = true;
        self.database.note_snapshot();
        Ok(SnapshotInfo { begin, end, name: std::mem::take(&mut self.id) })
    }
}

impl Drop for Sink {
    /// What is left when this fails is removed by a trim.
    fn drop(&mut self) {
        if !self.is_finished && self.blocks > 0 {
            let (shard, id) = (self.database.shard(), std::mem::take(&mut self.id));
            drop(self.database.begin(move |session| async move {
                let sql = "DELETE FROM lessor.snapshot_block WHERE shard = $1 AND id = $2::text::uuid";
                session.execute(sql, &[&shard, &id]).await?;
                Ok(())
            }));
        }
    }
}

const BLOCKS: &str = "SELECT blocks FROM lessor.snapshot WHERE shard = $1 AND id = $2::text::uuid";

/// A snapshot that is being loaded.
pub(super) struct BlockRows {
    database: Database,
    info: SnapshotInfo,
    blocks: i32,
    next: i32,
}

impl BlockRows {
    pub(super) fn open(database: &Database, info: &SnapshotInfo) -> Result<BlockRows, Error> {
        let (shard, id) = (database.shard(), info.name.clone());
        let blocks = database.run(move |session| async move {
            let row = session.query_opt(BLOCKS, &[&shard, &id]).await?;
            row.map(|row| row.get(0)).ok_or(Error::SnapshotGone)
        })?;
        Ok(BlockRows { database: database.clone(), info: info.clone(), blocks, next: 0 })
    }

    fn damaged(&self) -> LedgerError {
        let what = format!("block {} of the snapshot {} is not what was written", self.next, self.info.name);
        Error::Damaged(what).into()
    }
}

impl SnapshotSource for BlockRows {
    fn info(&self) -> &SnapshotInfo {
        &self.info
    }

    fn next_block(&mut self, block: &mut Vec<u8>) -> Result<bool, LedgerError> {
        if self.next == self.blocks {
            return Ok(false);
        }
        let (shard, id, n) = (self.database.shard(), self.info.name.clone(), self.next);
        let found = self.database.run(move |session| async move {
            let sql = "SELECT crc, body FROM lessor.snapshot_block \
                       WHERE shard = $1 AND id = $2::text::uuid AND n = $3";
            let row = session.query_opt(sql, &[&shard, &id, &n]).await?;
            // A trim removes the snapshot first, and then its blocks.
            if row.is_none() && session.query_opt(BLOCKS, &[&shard, &id]).await?.is_none() {
                return Err(Error::SnapshotGone);
            }
            Ok(row.map(|row| (row.get::<_, i64>(0), row.get::<_, Vec<u8>>(1))))
        })?;
        let (crc, body) = found.ok_or_else(|| self.damaged())?;
        if i64::from(crc32c::crc32c(&body)) != crc {
            return Err(self.damaged());
        }
        (*block, self.next) = (body, self.next + 1);
        Ok(true)
    }
}
