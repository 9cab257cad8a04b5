//! The nodes of a cluster, as they see each other through the database: who is there, who owns the shard, and whether the
//! owner lives.
//!
//! All of it is a hint. Who owns a shard is decided by its ledger alone.

use std::hash::{BuildHasher, RandomState};

use tokio::sync::watch;
use tokio_postgres::GenericClient;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::Error;
use super::batch_row::{Place, link, position};
use super::connection::{Heard, Session};
use super::holdings::SERVER;
use super::schema::RECORD_FORMAT;
use super::shared::Database;
use crate::{Link, Position};

/// The first key of the advisory lock of an owner; the second is the shard.
const LOCK_CLASS: i32 = 0x4c45_5353;
/// Told to all nodes when an owner leaves or another one has taken over.
const CHANNEL: &str = "lessor_owner";

/// The reason of an owner that hands over because most nodes cannot reach it.
const CUT_OFF: &str = "most nodes cannot reach it; it hands over";

/// The rows are hints, and a failover may undo them: their commits wait for no replica, so that nodes see each other while one
/// is away. A row that another session of this node still holds is not waited for without end, or each look would leave a session behind
/// that waits for it.
const SETTINGS: &str = "SET synchronous_commit = local; SET lock_timeout = 4000";

/// A session that is told to end does so within this time, or is not waited for.
const LIMIT_TERMINATION: &str = "SET lock_timeout = 1000";

/// The owner's lock that somebody holds: `$1` is the shard, `$2` the class. The server has locks of other databases too.
const HELD: &str = "pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND objid = $1::int4::oid \
    AND classid = $2::int4::oid AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

const OBSERVE: &str = "SELECT last.next, \
    EXISTS (SELECT 1 FROM {HELD}), owner.node, owner.address, owner.epoch, coalesce(node.beat, 0), \
    coalesce((extract(epoch FROM now() - node.seen) * 1000)::int8, 0), \
    EXISTS (SELECT 1 FROM lessor.node WHERE node = $3 AND instance = $4 AND draining), last.link, coalesce(owner.reason = $5, false), coalesce(owner.server = {SERVER}, false) \
    FROM (SELECT 1) AS one LEFT JOIN (SELECT next, link FROM lessor.batch WHERE shard = $1 ORDER BY first DESC LIMIT 1) AS last ON true LEFT JOIN lessor.shard_owner AS owner ON owner.shard = $1 \
    LEFT JOIN lessor.node ON node.node = owner.node";

/// Writes the row of a node, unless another process holds its name: `$9` takes the name from that process. A process that
/// was at the same address is gone, and so is one that was not seen for a while. The time of an owner that was there before goes
/// on: how old it is was known by the column that is overwritten.
const ANNOUNCE: &str = "INSERT INTO lessor.node (node, instance, address, version, format, applied, draining, connections, hot) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $10) ON CONFLICT (node) DO UPDATE SET instance = excluded.instance, \
    address = excluded.address, version = excluded.version, format = excluded.format, applied = excluded.applied, \
    draining = excluded.draining OR (node.instance = excluded.instance AND node.draining), \
    fed = node.fed AND node.instance = excluded.instance, connections = excluded.connections, hot = excluded.hot, \
    held_on = CASE WHEN node.instance = excluded.instance THEN node.held_on ELSE 0 END, seen = now(), \
    beat = CASE WHEN node.instance = excluded.instance OR node.beat = 0 THEN node.beat \
    ELSE node.beat + (extract(epoch FROM now() - node.seen) * 1000)::int8 END \
    WHERE node.instance IN (0, excluded.instance) OR node.address = excluded.address OR $9 \
    OR node.seen < now() - interval '6 seconds'";

/// A node's connection for everything that is not the ledger itself.
pub struct Membership {
    database: Database,
    /// This process among those that have, or had, the same name.
    instance: i64,
    session: Option<Session>,
    is_new: bool,
    /// Counts the news that other nodes have sent.
    news: watch::Sender<u64>,
    /// Counts the sessions that have ended.
    ended: watch::Sender<u64>,
}

/// What a node sees of the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Where the ledger continues.
    pub next: Position,
    /// Stands for everything before.
    pub link: Link,
    /// Whether a session holds the owner's lock.
    pub is_locked: bool,
    pub owner: Option<OwnerRow>,
    /// The owner's time when it last said that it lives, in milliseconds; 0 when it never did.
    pub beat: u64,
    /// How long ago that was at least, by the clock of the database.
    pub beat_age_ms: u64,
    /// Whether the last owner that has said so has found everything on this server that it knew to be durable.
    pub is_recorded: bool,
    /// Whether the row of this node says that it leaves.
    pub is_draining: bool,
    /// Whether the owner has said that it hands over because most nodes cannot reach it.
    pub is_cut_off: bool,
}

/// What a node says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    pub address: String,
    pub version: String,
    pub applied_next: Position,
    pub is_draining: bool,
    /// The connections of clients that are open.
    pub connections: u64,
    /// Whether it could take over at once.
    pub is_hot: bool,
}

/// Who holds the name of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameHolder {
    /// This process.
    This,
    /// Another process, which was at this address and was last seen at this time, by the clock of the database.
    Other { address: String, instance: i64, seen_us: i64 },
}

/// The owner, as it has announced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRow {
    pub node: String,
    pub address: String,
    pub epoch: u64,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub node: String,
    /// Whether this process is the node.
    pub is_this: bool,
    pub address: String,
    pub version: String,
    /// The position of the record that a standby applies next.
    pub applied_next: Position,
    /// How long ago it was last seen.
    pub seen_ms: u64,
    /// Whether the owner sends its batches to it.
    pub is_fed: bool,
    /// Whether it leaves.
    pub is_draining: bool,
    pub connections: u64,
}

/// Another node that was seen lately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivingNode {
    pub name: String,
    /// How long ago it was last seen.
    pub seen_ms: u64,
    /// Whether it could take over at once, and stays.
    pub can_take_over: bool,
}

/// An owner with what is known of its takeover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardRow {
    pub shard: u32,
    pub owner: Option<OwnerRow>,
    pub reason: String,
    pub owner_for_ms: u64,
    pub next: Position,
}

impl Membership {
    pub fn new(database: Database) -> Membership {
        // The keys of the hasher are random. A positive number is not 0, which stands for nobody.
        let instance = (RandomState::new().hash_one(0_u8) >> 1) as i64 | 1;
        let (news, ended) = (watch::Sender::new(0), watch::Sender::new(0));
        Membership { database, instance, session: None, is_new: false, news, ended }
    }

    /// Changes when another node has something to tell.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Changes when a session has ended, and with it the lock that it held.
    pub fn ended(&self) -> watch::Receiver<u64> {
        self.ended.subscribe()
    }

    /// Ends a session that does not answer.
    pub fn hang_up(&mut self) {
        self.session.take().into_iter().for_each(Session::hang_up);
    }

    pub(super) fn shard(&self) -> i32 {
        self.database.shard()
    }

    /// The name of this node, and this process among those with the same name.
    pub(super) fn identity(&self) -> (String, i64) {
        (self.database.options().node.clone(), self.instance)
    }

    /// Whether the session is another one than at the last call, and perhaps another server.
    pub fn take_is_new(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }

    /// Adds this node to the list of nodes, unless another process holds its name and the name is not to be taken from it.
    pub async fn announce(&mut self, about: &Announcement, takes_name: bool) -> Result<NameHolder, Error> {
        let (node, instance) = self.identity();
        let (applied, connections) = (about.applied_next.0 as i64, about.connections as i64);
        let session = self.session().await?;
        let Announcement { address, version, is_draining, is_hot, .. } = about;
        let parameters: [&(dyn ToSql + Sync); 10] = [
            &node,
            &instance,
            address,
            version,
            &RECORD_FORMAT,
            &applied,
            is_draining,
            &connections,
            &takes_name,
            is_hot,
        ];
        if session.execute(ANNOUNCE, &parameters).await? > 0 {
            return Ok(NameHolder::This);
        }
        let sql = "SELECT address, instance, (extract(epoch FROM seen) * 1000000)::int8 FROM lessor.node WHERE node = $1";
        let holder = session.query_opt(sql, &[&node]).await?;
        // A row that went away in between is written the next time.
        Ok(holder.map_or(NameHolder::This, |row| NameHolder::Other {
            address: row.get(0),
            instance: row.get(1),
            seen_us: row.get(2),
        }))
    }

    /// Asks a node to leave. False when there is no such node.
    pub async fn order_drain(&mut self, node: &str) -> Result<bool, Error> {
        let session = self.session().await?;
        let sql = "UPDATE lessor.node SET draining = true WHERE node = $1";
        let is_known = session.execute(sql, &[&node]).await? > 0;
        notify(&session.client).await?;
        Ok(is_known)
    }

    pub async fn observe(&mut self) -> Result<Observed, Error> {
        let (shard, instance) = (self.database.shard(), self.instance);
        let node = self.database.options().node.clone();
        let session = self.session().await?;
        let observe = OBSERVE.replace("{HELD}", HELD).replace("{SERVER}", SERVER);
        let row = session.query_one(&observe, &[&shard, &LOCK_CLASS, &node, &instance, &CUT_OFF]).await?;
        let owner = row.get::<_, Option<String>>(2).map(|node| OwnerRow {
            node,
            address: row.get(3),
            epoch: row.get::<_, i64>(4) as u64,
        });
        let next: Option<i64> = row.get(0);
        let next = next.ok_or_else(|| Error::Damaged("a shard has no batch".to_owned()))?;
        let link = link(row.get(8))?;
        let beat = row.get::<_, i64>(5) as u64;
        let beat_age_ms = row.get::<_, i64>(6).max(0) as u64;
        let (is_locked, is_draining, is_cut_off, is_recorded) =
            (row.get(1), row.get(7), row.get(9), row.get(10));
        Ok(Observed {
            next: position(next),
            link,
            is_locked,
            owner,
            beat,
            beat_age_ms,
            is_recorded,
            is_draining,
            is_cut_off,
        })
    }

    /// Takes the owner's lock if it is free. The session holds it until it ends or gives it back.
    pub async fn try_lock(&mut self) -> Result<bool, Error> {
        let shard = self.database.shard();
        let session = self.session().await?;
        let sql = format!(
            "SELECT EXISTS (SELECT 1 FROM {HELD} AND pid = pg_backend_pid()) OR pg_try_advisory_lock($2, $1)"
        );
        Ok(session.query_one(&sql, &[&shard, &LOCK_CLASS]).await?.get(0))
    }

    /// Ends the session of an owner that was replaced, and takes its lock as soon as it is free. Others may see it free for a moment; they have
    /// read of the takeover before.
    pub async fn end_previous_owner(&mut self) -> Result<(), Error> {
        let shard = self.database.shard();
        let session = self.session().await?;
        let sql = format!("SELECT pg_terminate_backend(pid) FROM {HELD} AND pid <> pg_backend_pid()");
        if session.query(&sql, &[&shard, &LOCK_CLASS]).await?.is_empty() {
            return Ok(());
        }
        session.execute(LIMIT_TERMINATION, &[]).await?;
        let locked = session.query("SELECT pg_advisory_lock($2, $1)", &[&shard, &LOCK_CLASS]).await;
        session.client.batch_execute(SETTINGS).await?;
        match locked {
            Err(error) if error.state() != Some(&SqlState::LOCK_NOT_AVAILABLE) => Err(error),
            _ => Ok(()),
        }
    }

    /// Says who owns the shard and what time it has, and tells the other nodes. `last` is the last batch that the owner knows to
    /// be durable. An owner that was replaced, or that a failover has undone, changes nothing: the last batch is of another epoch, or the
    /// server lacks the owner's batches, also if a later owner has got the same epoch.
    pub async fn record_owner(
        &mut self,
        owner: &OwnerRow,
        reason: &str,
        time_ms: u64,
        last: Place,
    ) -> Result<(), Error> {
        let (shard, instance) = (self.database.shard(), self.instance);
        let session = self.session().await?;
        // With the row: a time from when this node owned the shard before is no time of this owner.
        let sql = "WITH beat AS (UPDATE lessor.node SET beat = $6, seen = now(), hot = false WHERE node = $2 AND instance = $7) \
                   INSERT INTO lessor.shard_owner SELECT $1::int4, $2::text, $3::text, last.epoch, $5::text, now() \
                   FROM (SELECT epoch FROM lessor.batch WHERE shard = $1 ORDER BY first DESC LIMIT 1) AS last \
                   WHERE last.epoch = $4 AND EXISTS (SELECT 1 FROM lessor.batch WHERE shard = $1 AND first = $8 AND link = $9) \
                   ON CONFLICT (shard) DO UPDATE SET node = excluded.node, address = excluded.address, \
                   epoch = excluded.epoch, reason = excluded.reason, since = now()";
        let (epoch, time) = (owner.epoch as i64, time_ms as i64);
        let (first, last_link) = (last.first.0 as i64, last.link.0.as_slice());
        let parameters: [&(dyn ToSql + Sync); 9] =
            [&shard, &owner.node, &owner.address, &epoch, &reason, &time, &instance, &first, &last_link];
        if session.execute(sql, &parameters).await? > 0 {
            notify(&session.client).await?;
        }
        Ok(())
    }

    /// Says that this node lives, and what time it has as an owner; 0 for a node that owns nothing. False when the row is
    /// missing or belongs to another process.
    pub async fn beat(&mut self, time_ms: u64) -> Result<bool, Error> {
        let (node, instance) = self.identity();
        let session = self.session().await?;
        let sql = "UPDATE lessor.node SET beat = $3, seen = now() WHERE node = $1 AND instance = $2";
        Ok(session.execute(sql, &[&node, &instance, &(time_ms as i64)]).await? > 0)
    }

    /// Says whether the owner sends its batches to this node.
    pub async fn set_fed(&mut self, is_fed: bool) -> Result<(), Error> {
        let (node, instance) = self.identity();
        let session = self.session().await?;
        let sql = "UPDATE lessor.node SET fed = $3 WHERE node = $1 AND instance = $2";
        session.execute(sql, &[&node, &instance, &is_fed]).await?;
        Ok(())
    }

    /// Gives the lock back.
    pub async fn unlock(&mut self) -> Result<(), Error> {
        let shard = self.database.shard();
        let session = self.session().await?;
        session.query("SELECT pg_advisory_unlock($1, $2)", &[&LOCK_CLASS, &shard]).await?;
        Ok(())
    }

    /// Gives the lock back and tells the other nodes, so that one of them takes over at once.
    pub async fn release(&mut self) -> Result<(), Error> {
        self.unlock().await?;
        notify(&self.session().await?.client).await
    }

    /// Says that the owner at this epoch, this node, hands over because most nodes cannot reach it.
    pub async fn record_cut_off(&mut self, epoch: u64) -> Result<(), Error> {
        let (shard, (node, _)) = (self.database.shard(), self.identity());
        let session = self.session().await?;
        let sql = "UPDATE lessor.shard_owner SET reason = $4 WHERE shard = $1 AND node = $2 AND epoch = $3";
        session.execute(sql, &[&shard, &node, &(epoch as i64), &CUT_OFF]).await?;
        Ok(())
    }

    /// Removes this node from the list.
    pub async fn leave(&mut self) -> Result<(), Error> {
        let (node, instance) = self.identity();
        let session = self.session().await?;
        let sql = "DELETE FROM lessor.node WHERE node = $1 AND instance IN (0, $2)";
        session.execute(sql, &[&node, &instance]).await?;
        notify(&session.client).await
    }

    /// The addresses of the other nodes that could take over at once, and stay.
    pub async fn successors(&mut self) -> Result<Vec<(String, String)>, Error> {
        let instance = self.instance;
        let session = self.session().await?;
        let sql = "SELECT node, address FROM lessor.node WHERE instance NOT IN (0, $1) AND hot \
                   AND NOT draining AND seen > now() - interval '6 seconds' ORDER BY node";
        let rows = session.query(sql, &[&instance]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// The other nodes that live, also those that leave.
    pub async fn living(&mut self) -> Result<Vec<LivingNode>, Error> {
        let instance = self.instance;
        let session = self.session().await?;
        let sql = "SELECT node, (extract(epoch FROM now() - seen) * 1000)::int8, hot AND NOT draining FROM lessor.node \
                   WHERE instance NOT IN (0, $1) AND seen > now() - interval '6 seconds'";
        let rows = session.query(sql, &[&instance]).await?;
        let living = |row: &tokio_postgres::Row| LivingNode {
            name: row.get(0),
            seen_ms: row.get::<_, i64>(1).max(0) as u64,
            can_take_over: row.get(2),
        };
        Ok(rows.iter().map(living).collect())
    }

    /// All nodes and all shards.
    pub async fn list(&mut self) -> Result<(Vec<NodeRow>, Vec<ShardRow>), Error> {
        let instance = self.instance;
        let session = self.session().await?;
        let sql = "SELECT node, address, version, (extract(epoch FROM now() - seen) * 1000)::int8, applied, instance, \
                   draining, connections, fed FROM lessor.node ORDER BY node";
        let nodes = session.query(sql, &[]).await?;
        let node = |row: &tokio_postgres::Row| NodeRow {
            node: row.get(0),
            address: row.get(1),
            version: row.get(2),
            seen_ms: row.get::<_, i64>(3).max(0) as u64,
            applied_next: position(row.get(4)),
            is_this: row.get::<_, i64>(5) == instance,
            is_draining: row.get(6),
            connections: row.get::<_, i64>(7).max(0) as u64,
            is_fed: row.get(8),
        };
        let sql = "SELECT last.shard, owner.node, owner.address, owner.epoch, owner.reason, \
                   (extract(epoch FROM now() - owner.since) * 1000)::int8, last.next \
                   FROM (SELECT shard, (SELECT next FROM lessor.batch AS batch WHERE batch.shard = shards.shard \
                         ORDER BY first DESC LIMIT 1) AS next \
                         FROM lessor.cluster, generate_series(0, shards - 1) AS shards (shard)) AS last \
                   LEFT JOIN lessor.shard_owner AS owner USING (shard) ORDER BY shard";
        let shards = session.query(sql, &[]).await?;
        let shard = |row: &tokio_postgres::Row| ShardRow {
            shard: row.get::<_, i32>(0) as u32,
            owner: row.get::<_, Option<String>>(1).map(|node| OwnerRow {
                node,
                address: row.get(2),
                epoch: row.get::<_, i64>(3) as u64,
            }),
            reason: row.get::<_, Option<String>>(4).unwrap_or_default(),
            owner_for_ms: row.get::<_, Option<i64>>(5).unwrap_or(0).max(0) as u64,
            next: position(row.get(6)),
        };
        Ok((nodes.iter().map(node).collect(), shards.iter().map(shard).collect()))
    }

    /// The open session, or a new one when there is none or it broke. With the session an owner's lock is lost.
    pub(super) async fn session(&mut self) -> Result<&Session, Error> {
        if self.session.as_ref().is_some_and(|session| session.client.is_closed()) {
            self.session = None;
        }
        if self.session.is_none() {
            let (news, ended) = (self.news.clone(), self.ended.clone());
            let session = Session::connect_and_listen(self.database.server(), move |heard| {
                let counter = match heard {
                    Heard::Notification => &news,
                    Heard::End => &ended,
                };
                counter.send_modify(|count| *count += 1);
            })
            .await?;
            session.client.batch_execute(&format!("{SETTINGS}; LISTEN {CHANNEL}")).await?;
            (self.session, self.is_new) = (Some(session), true);
        }
        self.session.as_ref().ok_or(Error::Closed)
    }
}

async fn notify(client: &impl GenericClient) -> Result<(), Error> {
    Ok(client.batch_execute(&format!("NOTIFY {CHANNEL}")).await?)
}
