//! Projection offsets as rows.

use super::batch_row::position;
use super::shared::Database;
use crate::{Error, Position, ProjectionOffsets};

pub struct OffsetRows(Database);

impl OffsetRows {
    pub fn new(database: Database) -> OffsetRows {
        OffsetRows(database)
    }

    /// All offsets, by the names of their projections.
    pub fn list(&self) -> Result<Vec<(String, Position)>, Error> {
        let shard = self.0.shard();
        Ok(self.0.run(move |session| async move {
            let sql =
                "SELECT projection, at FROM lessor.projection_offset WHERE shard = $1 ORDER BY projection";
            let rows = session.query(sql, &[&shard]).await?;
            Ok(rows.iter().map(|row| (row.get(0), position(row.get(1)))).collect())
        })?)
    }
}

impl ProjectionOffsets for OffsetRows {
    fn load(&self, projection: &str) -> Result<Option<Position>, Error> {
        let (shard, projection) = (self.0.shard(), projection.to_owned());
        Ok(self.0.run(move |session| async move {
            let sql = "SELECT at FROM lessor.projection_offset WHERE shard = $1 AND projection = $2";
            let row = session.query_opt(sql, &[&shard, &projection]).await?;
            Ok(row.map(|row| position(row.get(0))))
        })?)
    }

    /// An earlier owner that is not aware of its successor changes nothing.
    fn save(&self, projection: &str, applied_up_to: Position, epoch: u64) -> Result<(), Error> {
        let (shard, projection) = (self.0.shard(), projection.to_owned());
        let (at, epoch) = (applied_up_to.0 as i64, epoch as i64);
        Ok(self.0.run(move |session| async move {
            let sql = "INSERT INTO lessor.projection_offset VALUES ($1, $2, $3, $4) \
                       ON CONFLICT (shard, projection) DO UPDATE SET at = excluded.at, epoch = excluded.epoch \
                       WHERE projection_offset.epoch <= excluded.epoch";
            session.execute(sql, &[&shard, &projection, &at, &epoch]).await?;
            Ok(())
        })?)
    }
}
