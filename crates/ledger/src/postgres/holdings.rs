//! The choice of the standby that takes over when the database may have lost commits: the one that holds most.
//!
//! A failover changes the server that answers. The owner records the server on which it has found everything that it knows to be
//! durable; only what is written after a failover can name the new server, so the failover cannot undo the record
//! unnoticed. While the server is the recorded one, nothing is missing, and any standby may take over. Otherwise each
//! standby writes down what it holds, and compares.

use super::Error;
use super::batch_row::position;
use super::membership::Membership;
use crate::Position;

/// The server that answers, by the time of its start: a replica that was promoted has another one than its primary, and so has
/// a server that was restarted.
pub(super) const SERVER: &str = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8";

/// The last batch that a node holds. A later owner replaces what an earlier one has never made durable, so its epoch counts
/// first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holding {
    pub epoch: u64,
    pub next: Position,
}

/// Another node that could take over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    pub node: String,
    /// What it holds, if it has said so since the last failover.
    pub holding: Option<Holding>,
    /// How long ago it was seen.
    pub seen_ms: u64,
}

impl Membership {
    /// Records that this server holds everything that the owner at `epoch` knows to be durable: all before `durable_next`. False when
    /// the server lacks some of it.
    pub async fn record_server(&mut self, epoch: u64, durable_next: Position) -> Result<bool, Error> {
        let shard = self.shard();
        let sql = format!(
            "UPDATE lessor.shard_owner SET server = {SERVER} WHERE shard = $1 AND epoch = $2 AND \
             node = $4 AND (SELECT epoch = $2 AND next >= $3 FROM lessor.batch WHERE shard = $1 ORDER BY first DESC LIMIT 1)"
        );
        let (epoch, next) = (epoch as i64, durable_next.0 as i64);
        let (node, _) = self.identity();
        Ok(self.session().await?.execute(&sql, &[&shard, &epoch, &next, &node]).await? > 0)
    }

    /// Whether the server is the one that the last owner has found complete, and no node knows of more.
    pub async fn is_complete(&mut self) -> Result<bool, Error> {
        let shard = self.shard();
        let sql = format!(
            "SELECT coalesce((SELECT server = {SERVER} FROM lessor.shard_owner WHERE shard = $1), false) AND NOT EXISTS \
             (SELECT 1 FROM lessor.node WHERE applied > \
              (SELECT next FROM lessor.batch WHERE shard = $1 ORDER BY first DESC LIMIT 1))"
        );
        Ok(self.session().await?.query_one(&sql, &[&shard]).await?.get(0))
    }

    /// Writes down what this node holds. False when it has no row.
    pub async fn record_holding(&mut self, holding: Holding) -> Result<bool, Error> {
        let (node, instance) = self.identity();
        let sql = format!(
            "UPDATE lessor.node SET held_epoch = $3, held = $4, held_on = {SERVER} WHERE node = $1 AND instance = $2"
        );
        let (epoch, next) = (holding.epoch as i64, holding.next.0 as i64);
        Ok(self.session().await?.execute(&sql, &[&node, &instance, &epoch, &next]).await? > 0)
    }

    /// The other nodes that could take over.
    pub async fn rivals(&mut self) -> Result<Vec<Rival>, Error> {
        let (_, instance) = self.identity();
        let sql = format!(
            "SELECT node, held_on = {SERVER}, held_epoch, held, (extract(epoch FROM now() - seen) * 1000)::int8 \
             FROM lessor.node WHERE hot AND NOT draining AND instance NOT IN (0, $1) ORDER BY node"
        );
        let rows = self.session().await?.query(&sql, &[&instance]).await?;
        let rival = |row: &tokio_postgres::Row| Rival {
            node: row.get(0),
            holding: row
                .get::<_, bool>(1)
                .then(|| Holding { epoch: row.get::<_, i64>(2) as u64, next: position(row.get(3)) }),
            seen_ms: row.get::<_, i64>(4).max(0) as u64,
        };
        Ok(rows.iter().map(rival).collect())
    }
}
