//! The outer message of a snapshot entry, the list of its kinds with their tags, and the small kinds.

use std::sync::Arc;

use authority::{Position, QueueConfig, Time};
use prost::bytes::Bytes;

use super::SnapshotEntry;
use super::task::Task;
use crate::record::codec::{Message as _, encoded};
use crate::record::error::{DecodeError, need};
use crate::record::value::QueueKey;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Entry {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5")]
    pub kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    #[prost(message, tag = "1")]
    Header(Header),
    #[prost(message, boxed, tag = "2")]
    Task(Box<Task>),
    #[prost(message, tag = "3")]
    Queue(Queue),
    #[prost(message, tag = "4")]
    Owner(Owner),
    #[prost(message, tag = "5")]
    TokenKey(TokenKey),
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Header {
    #[prost(uint64, tag = "1")]
    pub begin: u64,
    #[prost(uint64, tag = "2")]
    pub time: u64,
    #[prost(uint32, tag = "3")]
    pub format: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Queue {
    #[prost(message, optional, tag = "1")]
    pub key: Option<QueueKey>,
    /// The encoded message.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub config: Option<Bytes>,
    #[prost(uint64, tag = "3")]
    pub configured: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Owner {
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    #[prost(string, tag = "2")]
    pub node: String,
    #[prost(uint64, tag = "3")]
    pub since: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TokenKey {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(uint64, tag = "2")]
    pub since: u64,
}

impl TryFrom<Kind> for SnapshotEntry {
    type Error = DecodeError;

    fn try_from(kind: Kind) -> Result<SnapshotEntry, DecodeError> {
        Ok(match kind {
            Kind::Header(header) => SnapshotEntry::Header {
                begin: Position(header.begin),
                time: Time(header.time),
                format: header.format,
            },
            Kind::Task(task) => {
                let (queue, task) = task.into_parts()?;
                SnapshotEntry::Task { queue: Arc::new(queue), task: Box::new(task) }
            }
            Kind::Queue(queue) => SnapshotEntry::Queue {
                key: Arc::new(need(queue.key, "the queue")?.into()),
                config: QueueConfig::decode(&need(queue.config, "the configuration")?)?,
                configured: Position(queue.configured),
            },
            Kind::Owner(owner) => SnapshotEntry::Owner(authority::Owner {
                epoch: owner.epoch,
                node: owner.node.into(),
                since: Position(owner.since),
            }),
            Kind::TokenKey(key) => {
                SnapshotEntry::TokenKey(authority::TokenKey { id: key.id.into(), since: Position(key.since) })
            }
        })
    }
}

impl Queue {
    pub fn new(key: &authority::QueueKey, config: &QueueConfig, configured: Position) -> Queue {
        Queue { key: Some(key.into()), config: Some(encoded(config)), configured: configured.0 }
    }
}

impl From<&authority::Owner> for Owner {
    fn from(owner: &authority::Owner) -> Owner {
        Owner { epoch: owner.epoch, node: owner.node.to_string(), since: owner.since.0 }
    }
}

impl From<&authority::TokenKey> for TokenKey {
    fn from(key: &authority::TokenKey) -> TokenKey {
        TokenKey { id: key.id.to_string(), since: key.since.0 }
    }
}
