//! The PostgreSQL backend: the ledger of a cluster in a database that several nodes share.
//!
//! A batch is one row. Its link, a hash over the batch and everything before it, is the fence: a row is inserted only
//! behind the row that its writer knows, in one statement. An append is durable when PostgreSQL has acknowledged its
//! commit without a warning. `docs/postgres.md` describes the tables and what each failure can lose.

mod admin;
mod append;
mod appender;
mod batch_row;
mod batch_table;
mod connection;
mod error;
mod feed;
mod holdings;
mod import;
mod inbox;
mod kept;
mod ledger;
mod membership;
mod offsets;
mod page;
mod reader;
mod ready_session;
mod recent;
mod rules;
mod schema;
mod server;
mod shared;
mod snapshot;
mod sql_table;
mod tables;
mod trim;

use std::sync::Arc;

pub use admin::{Description, Finalized, Node, connected_nodes, describe, finalize, replace_key};
pub use appender::{Appender, Prepared};
pub use batch_row::{BatchRow, Place};
pub use batch_table::{BatchTable, End, Inserted};
pub use error::Error;
pub use feed::{Fed, Feed, FeedOptions, Receipts, Subscription};
pub use holdings::{Holding, Rival};
pub use import::Import;
pub use inbox::{Inbox, InboxRow};
pub use kept::{Kept, Standing, Stream};
pub use ledger::PostgresLedger;
pub use membership::{
    Announcement, LivingNode, Membership, NameHolder, NodeRow, Observed, OwnerRow, ShardRow,
};
pub use offsets::OffsetRows;
pub use reader::PostgresReader;
pub use schema::{Cluster, SCHEMA_VERSION, initialize};
pub use server::Server;
pub use shared::Database;
pub use sql_table::standing;
pub use tables::{Difference, Rebuilt, Tables, Verified, WhatDiffers, rebuild, verify};

use crate::Storage;

/// Seven days.
const DEFAULT_HISTORY_MAX_AGE_MS: u64 = 7 * 24 * 60 * 60 * 1000;
const DEFAULT_HISTORY_MAX_BYTES: u64 = 10 << 30;
pub const DEFAULT_TABLES_PAYLOAD_KIB: u32 = 16;

/// The settings of a ledger in PostgreSQL.
#[derive(Clone)]
pub struct Options {
    pub shard: u32,
    /// The name of this node.
    pub node: String,
    /// The fingerprint of the cluster key. A database that was initialized with another key is refused.
    pub key_print: [u8; 16],
    /// Batches that the snapshots cover are kept as history for this long.
    pub history_max_age_ms: u64,
    /// Batches that the snapshots cover are kept as history up to this size in total.
    pub history_max_bytes: u64,
    /// When the tables of tasks are written.
    pub tables: Tables,
    /// Payloads, results and other content up to this size are stored in the tables.
    pub tables_payload_kib: u32,
}

impl Options {
    pub fn new(node: &str, key_print: [u8; 16]) -> Options {
        Options {
            shard: 0,
            node: node.to_owned(),
            key_print,
            history_max_age_ms: DEFAULT_HISTORY_MAX_AGE_MS,
            history_max_bytes: DEFAULT_HISTORY_MAX_BYTES,
            tables: Tables::default(),
            tables_payload_kib: DEFAULT_TABLES_PAYLOAD_KIB,
        }
    }
}

/// Opens the ledger of a shard behind its last batch. Several nodes may do so; the first append fences all others.
pub fn open(server: Server, options: Options) -> Result<Storage, crate::Error> {
    let database = Database::connect(server, options)?;
    let offsets = Arc::new(OffsetRows::new(database.clone()));
    Ok(Storage { ledger: Box::new(PostgresLedger::open(database)?), offsets })
}

/// Opens the ledger of a shard for reading, without its key, beside the nodes of the cluster.
pub fn inspect(server: Server, shard: u32) -> Result<(PostgresReader, OffsetRows, Cluster), crate::Error> {
    let database = Database::inspect(server, shard)?;
    let cluster = database.cluster();
    Ok((PostgresReader::new(database.clone()), OffsetRows::new(database), cluster))
}
