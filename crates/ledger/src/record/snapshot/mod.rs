//! The state as entries of a snapshot: each with its length before it, many of them in a block.
//!
//! The first entry is the header. Every other entry carries the position up to which it is true, so a snapshot
//! may be taken in slices while records go on being applied; [`authority::Restore`] has the rule.

mod load;
mod slices;
mod task;

use std::sync::Arc;

use authority::{Owner, Position, QueueConfig, QueueKey, StoredKey, Task, Time, TokenKey};

pub use load::{LoadError, Loader};
pub use slices::Slices;

use super::DecodeError;
use super::codec::{Field, Fields, Message, UNKNOWN_FIELD, Value, write_block, write_delimited};
use super::queue_keys::QueueKeys;

/// The version of the entries. A reader refuses a higher one.
pub const FORMAT: u32 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotEntry {
    /// The state's position and time when the snapshot was begun; replay starts after it.
    Header {
        begin: Position,
        time: Time,
        format: u32,
    },
    Task {
        queue: Arc<QueueKey>,
        task: Box<Task>,
    },
    /// A queue that was configured, by the record at `configured`.
    Queue {
        key: Arc<QueueKey>,
        config: QueueConfig,
        configured: Position,
    },
    Owner(Owner),
    TokenKey(TokenKey),
    Key(StoredKey),
}

const HEADER: u32 = 1;
const TASK: u32 = 2;
const QUEUE: u32 = 3;
const OWNER: u32 = 4;
const TOKEN_KEY: u32 = 5;
const KEY: u32 = 6;

pub fn encode_header(begin: Position, time: Time, out: &mut Vec<u8>) {
    append(HEADER, out, |out| {
        begin.encode(1, out);
        time.encode(2, out);
        FORMAT.encode(3, out);
    });
}

pub fn encode_task(queue: &QueueKey, task: &Task, out: &mut Vec<u8>) {
    append(TASK, out, |out| task::encode(queue, task, out));
}

pub fn encode_queue(key: &QueueKey, config: &QueueConfig, configured: Position, out: &mut Vec<u8>) {
    append(QUEUE, out, |out| {
        key.write(1, out);
        config.write(2, out);
        configured.encode(3, out);
    });
}

pub fn encode_owner(owner: &Owner, out: &mut Vec<u8>) {
    append(OWNER, out, |out| owner.encode_fields(out));
}

pub fn encode_token_key(key: &TokenKey, out: &mut Vec<u8>) {
    append(TOKEN_KEY, out, |out| key.encode_fields(out));
}

pub fn encode_key(key: &StoredKey, out: &mut Vec<u8>) {
    append(KEY, out, |out| key.encode_fields(out));
}

/// Appends an entry: its length, its tag and its body.
fn append(tag: u32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    write_delimited(out, |out| write_block(tag, out, body));
}

/// Decodes the blocks of a snapshot. Tasks share the names of their queues.
#[derive(Debug, Default)]
pub struct BlockDecoder {
    queues: QueueKeys,
}

impl BlockDecoder {
    /// Reads the entries of a block in order. It ends after the first error.
    pub fn entries<'a>(&'a mut self, block: &'a [u8]) -> Entries<'a> {
        Entries { rest: block, queues: &mut self.queues }
    }
}

pub struct Entries<'a> {
    rest: &'a [u8],
    queues: &'a mut QueueKeys,
}

impl Iterator for Entries<'_> {
    type Item = Result<SnapshotEntry, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.decode_next();
        if entry.is_err() {
            self.rest = &[];
        }
        Some(entry)
    }
}

impl Entries<'_> {
    fn decode_next(&mut self) -> Result<SnapshotEntry, DecodeError> {
        let mut block = Fields(self.rest);
        let mut entry = Fields(block.take_block()?);
        self.rest = block.0;
        let (tag, body) = entry.next_block()?.ok_or(DecodeError::Missing("the entry"))?;
        entry.finish()?;
        let mut fields = Fields(body);
        let entry = match tag {
            HEADER => SnapshotEntry::Header {
                begin: Field::decode(1, "begin", &mut fields)?,
                time: Field::decode(2, "time", &mut fields)?,
                format: Field::decode(3, "format", &mut fields)?,
            },
            TASK => {
                let (queue, task) = task::decode(&mut fields, self.queues)?;
                SnapshotEntry::Task { queue, task }
            }
            QUEUE => SnapshotEntry::Queue {
                key: Field::decode(1, "the queue", &mut fields)?,
                config: Field::decode(2, "the configuration", &mut fields)?,
                configured: Field::decode(3, "configured", &mut fields)?,
            },
            OWNER => return Owner::decode(body).map(SnapshotEntry::Owner),
            TOKEN_KEY => return TokenKey::decode(body).map(SnapshotEntry::TokenKey),
            KEY => return StoredKey::decode(body).map(SnapshotEntry::Key),
            _ => return Err(UNKNOWN_FIELD),
        };
        fields.finish()?;
        Ok(entry)
    }
}
