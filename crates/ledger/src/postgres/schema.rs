//! The schema, its creation and its migrations.

use tokio_postgres::{Client, GenericClient};

use super::batch_row::{Place, link};
use super::connection::Session;
use super::{Error, Server};
use crate::{ClusterId, Link, Position};

/// The version of the schema that this software uses.
pub const SCHEMA_VERSION: i32 = 1 + MIGRATIONS.len() as i32;
/// The first one makes version 2 of version 1. Migrations go forward only, never rewrite `batch`, and only add: nodes of earlier versions
/// run on, and can be started again. A migration that they cannot use raises `usable_from`.
const MIGRATIONS: [&str; 3] =
    [include_str!("migrations/2.sql"), include_str!("migrations/3.sql"), include_str!("migrations/4.sql")];
/// The newest record format that this software reads and writes.
pub(super) const RECORD_FORMAT: i32 = 1;
/// The most shards of a cluster: task ids hold 12 bits of the shard.
const MAX_SHARDS: u32 = 4_096;
/// Only one node changes the schema at a time.
pub(super) const SCHEMA_LOCK: i64 = 0x6c65_7373_6f72;

const SCHEMA: &str = include_str!("schema.sql");

/// The cluster that a database belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub id: ClusterId,
    pub shards: u32,
    pub key_print: [u8; 16],
}

impl Cluster {
    pub fn check_key(&self, key_print: [u8; 16]) -> Result<(), Error> {
        if self.key_print == key_print {
            return Ok(());
        }
        let refused =
            "the database belongs to a cluster with another key; check [cluster] key_file and the URL";
        Err(Error::Refused(refused.to_owned()))
    }
}

/// Creates the schema of a new cluster. Refuses a database that has one.
pub fn initialize(server: &Server, cluster: Cluster) -> Result<(), crate::Error> {
    if !(1..=MAX_SHARDS).contains(&cluster.shards) {
        let refused = format!("a cluster has 1 to {MAX_SHARDS} shards");
        return Err(Error::Refused(refused).into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::from)?;
    // On a thread of its own: the caller may be asynchronous.
    let created = std::thread::scope(|scope| {
        scope.spawn(move || runtime.block_on(create(server, cluster))).join().unwrap_or(Err(Error::Closed))
    });
    Ok(created?)
}

async fn create(server: &Server, cluster: Cluster) -> Result<(), Error> {
    let mut client = Session::connect(server).await?.client;
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&SCHEMA_LOCK]).await?;
    if has_schema(&transaction).await? {
        return Err(if has_cluster(&transaction).await? { holds_a_cluster() } else { Error::Incomplete });
    }
    create_tables(&transaction).await?;
    for shard in 0..cluster.shards {
        let (first, next, link) = (Position(0), Position(1), Link::origin(cluster.id, shard));
        insert_origin(&transaction, shard as i32, Place { first, next, link }).await?;
    }
    insert_cluster(&transaction, cluster).await?;
    transaction.commit().await?;
    Ok(())
}

pub(super) fn holds_a_cluster() -> Error {
    Error::Refused("the database holds a Lessor cluster already; nothing was changed".to_owned())
}

pub(super) async fn create_tables(client: &impl GenericClient) -> Result<(), Error> {
    client.batch_execute(SCHEMA).await?;
    Ok(client.batch_execute(super::tables::SCHEMA).await?)
}

/// Inserts the row before the first batch of a shard. It holds no record.
pub(super) async fn insert_origin(client: &impl GenericClient, shard: i32, row: Place) -> Result<(), Error> {
    let sql = "INSERT INTO lessor.batch VALUES ($1, $2, $3, 0, 0, $4, 0, '')";
    let (first, next) = (row.first.0 as i64, row.next.0 as i64);
    client.execute(sql, &[&shard, &first, &next, &&row.link.0[..]]).await?;
    client.execute("INSERT INTO lessor.table_state (shard) VALUES ($1)", &[&shard]).await?;
    Ok(())
}

/// Inserts the row that makes the tables a cluster.
pub(super) async fn insert_cluster(client: &impl GenericClient, cluster: Cluster) -> Result<(), Error> {
    let sql = "INSERT INTO lessor.cluster (id, shards, schema_version, format, key_print) VALUES ($1, $2, $3, $4, $5)";
    let (id, key_print) = (&cluster.id.0[..], &cluster.key_print[..]);
    let shards = cluster.shards as i32;
    client.execute(sql, &[&id, &shards, &SCHEMA_VERSION, &RECORD_FORMAT, &key_print]).await?;
    Ok(())
}

pub(super) async fn has_schema(client: &impl GenericClient) -> Result<bool, Error> {
    let found = "SELECT to_regclass('lessor.cluster') IS NOT NULL";
    Ok(client.query_one(found, &[]).await?.get(0))
}

pub(super) async fn has_cluster(client: &impl GenericClient) -> Result<bool, Error> {
    Ok(client.query_one("SELECT EXISTS (SELECT 1 FROM lessor.cluster)", &[]).await?.get(0))
}

/// Reads which cluster the database belongs to, and refuses records that this software does not understand. A schema that was
/// migrated while this process runs is none of its concern.
pub(super) async fn read_cluster(client: &impl GenericClient) -> Result<Cluster, Error> {
    if !has_schema(client).await? {
        return Err(Error::NotInitialized);
    }
    let row = client
        .query_opt("SELECT id, shards, schema_version, format, key_print FROM lessor.cluster", &[])
        .await?
        .ok_or(Error::Incomplete)?;
    let (schema, format): (i32, i32) = (row.get("schema_version"), row.get("format"));
    if format > RECORD_FORMAT {
        return Err(too_new(schema, format));
    }
    let Link(id) = link(row.get("id"))?;
    let Link(key_print) = link(row.get("key_print"))?;
    Ok(Cluster { id: ClusterId(id), shards: row.get::<_, i32>("shards") as u32, key_print })
}

/// The same, and refuses a schema of newer software that this software cannot use.
pub(super) async fn read_known_cluster(client: &impl GenericClient) -> Result<Cluster, Error> {
    let cluster = read_cluster(client).await?;
    let (schema, format) = versions(client).await?;
    if schema > SCHEMA_VERSION {
        let sql = "SELECT usable_from FROM lessor.cluster";
        if client.query_one(sql, &[]).await?.get::<_, i32>(0) > SCHEMA_VERSION {
            return Err(too_new(schema, format));
        }
    }
    Ok(cluster)
}

/// The same, and refuses a schema that was not migrated.
pub(super) async fn read_current_cluster(client: &impl GenericClient) -> Result<Cluster, Error> {
    let cluster = read_known_cluster(client).await?;
    let (schema, _) = versions(client).await?;
    if schema < SCHEMA_VERSION {
        return Err(Error::Refused(format!(
            "the database has schema {schema}, this software uses schema {SCHEMA_VERSION}; start a node of this version, which \
             migrates the database"
        )));
    }
    Ok(cluster)
}

async fn versions(client: &impl GenericClient) -> Result<(i32, i32), Error> {
    let row = client.query_one("SELECT schema_version, format FROM lessor.cluster", &[]).await?;
    Ok((row.get(0), row.get(1)))
}

fn too_new(schema: i32, format: i32) -> Error {
    Error::Refused(format!(
        "the database has schema {schema} and record format {format}, this software uses schema \
         {SCHEMA_VERSION} and reads formats up to {RECORD_FORMAT}; use the version of Lessor that the other nodes use"
    ))
}

/// Brings the schema of a cluster with this key to the version of this software. One node does it, all others wait for that.
pub(super) async fn migrate(client: &mut Client, key_print: [u8; 16]) -> Result<Cluster, Error> {
    read_cluster(client).await?.check_key(key_print)?;
    if versions(client).await?.0 < SCHEMA_VERSION {
        let transaction = client.transaction().await?;
        transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&SCHEMA_LOCK]).await?;
        // Other nodes wait behind a lock that this one waits for: less than makes them suspect the owner.
        transaction.batch_execute("SET LOCAL lock_timeout = '2s'").await?;
        let (found, _) = versions(&transaction).await?;
        for (version, migration) in (2..).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
            transaction.batch_execute(migration).await?;
            tracing::info!(version, "the schema of the database was migrated");
        }
        let sql = "UPDATE lessor.cluster SET schema_version = $1 WHERE schema_version < $1";
        transaction.execute(sql, &[&SCHEMA_VERSION]).await?;
        transaction.commit().await?;
    }
    read_current_cluster(client).await
}
