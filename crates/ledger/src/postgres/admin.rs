//! Administration of a cluster's database: what it holds, the registered nodes, its key and its record format.

use tokio_postgres::Row;

use super::connection::{NODE, READER, Session};
use super::schema::{Cluster, RECORD_FORMAT, read_known_cluster};
use super::{Error, Server};

/// The content of a database, for those who set it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The version of PostgreSQL, such as `15.8`.
    pub server_version: String,
    pub cluster: Cluster,
    /// The record format that nodes may write.
    pub format: u32,
    /// The standbys whose flush a commit waits for; empty when commits are not replicated synchronously.
    pub synchronous_standby_names: String,
    pub nodes: Vec<Node>,
}

/// A node that was registered when it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// Where the other nodes reach it.
    pub address: String,
    pub version: String,
    /// The newest record format that it reads.
    pub format: u32,
}

/// Connects as a node does, with all checks of the server's settings, and describes the database.
pub fn describe(server: &Server) -> Result<Description, crate::Error> {
    run(async {
        let session = Session::connect(server).await?;
        let cluster = read_known_cluster(&session.client).await?;
        let settings = "SELECT current_setting('server_version'), current_setting('synchronous_standby_names'), format \
                        FROM lessor.cluster";
        let row = session.client.query_one(settings, &[]).await?;
        let nodes = "SELECT node, address, version, format FROM lessor.node ORDER BY node";
        let nodes = session.client.query(nodes, &[]).await?;
        Ok(Description {
            server_version: row.get(0),
            synchronous_standby_names: row.get(1),
            format: row.get::<_, i32>(2) as u32,
            cluster,
            nodes: nodes.iter().map(node).collect(),
        })
    })
}

/// How many sessions of nodes the server has in this database.
pub fn connected_nodes(server: &Server) -> Result<u64, crate::Error> {
    let mut server = server.clone();
    server.config.application_name(READER);
    run(async {
        let session = Session::connect(&server).await?;
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1";
        Ok(session.client.query_one(sql, &[&NODE]).await?.get::<_, i64>(0) as u64)
    })
}

/// Replaces the fingerprint of the cluster key, and forgets the nodes: after a restore nobody may go on with the old key.
pub fn replace_key(server: &Server, old: [u8; 16], new: [u8; 16]) -> Result<(), crate::Error> {
    run(async {
        let mut session = Session::connect(server).await?;
        read_known_cluster(&session.client).await?.check_key(old)?;
        let transaction = session.client.transaction().await?;
        let sql = "UPDATE lessor.cluster SET key_print = $2 WHERE key_print = $1";
        let changed = transaction.execute(sql, &[&&old[..], &&new[..]]).await?;
        if changed != 1 {
            return Err(Error::Refused("the key of the cluster was replaced meanwhile".to_owned()));
        }
        transaction.batch_execute("DELETE FROM lessor.node; DELETE FROM lessor.shard_owner").await?;
        transaction.commit().await?;
        Ok(())
    })
}

/// The outcome of [`finalize`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finalized {
    /// The newest format that this software knows was enabled before.
    Already {
        format: u32,
    },
    Enabled {
        format: u32,
    },
    /// These nodes do not read the new format; nothing was changed.
    Refused {
        format: u32,
        nodes: Vec<Node>,
    },
}

/// Lets nodes write the newest record format of this software, if every registered node reads it.
pub fn finalize(server: &Server, key_print: [u8; 16]) -> Result<Finalized, crate::Error> {
    let format = RECORD_FORMAT as u32;
    run(async {
        let mut session = Session::connect(server).await?;
        read_known_cluster(&session.client).await?.check_key(key_print)?;
        let transaction = session.client.transaction().await?;
        let sql = "SELECT format FROM lessor.cluster FOR UPDATE";
        if transaction.query_one(sql, &[]).await?.get::<_, i32>(0) == RECORD_FORMAT {
            return Ok(Finalized::Already { format });
        }
        let sql = "SELECT node, address, version, format FROM lessor.node WHERE format < $1 ORDER BY node";
        let nodes: Vec<Node> = transaction.query(sql, &[&RECORD_FORMAT]).await?.iter().map(node).collect();
        if !nodes.is_empty() {
            return Ok(Finalized::Refused { format, nodes });
        }
        transaction.execute("UPDATE lessor.cluster SET format = $1", &[&RECORD_FORMAT]).await?;
        transaction.commit().await?;
        Ok(Finalized::Enabled { format })
    })
}

fn node(row: &Row) -> Node {
    Node { name: row.get(0), address: row.get(1), version: row.get(2), format: row.get::<_, i32>(3) as u32 }
}

fn run<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, crate::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::from)?;
    Ok(runtime.block_on(work)?)
}
