//! The state as entries of a snapshot: each with its length before it, many of them in a block.
//!
//! The first entry is the header. Every other entry carries the position up to which it is true, so a snapshot
//! may be taken in slices while records go on being applied; [`authority::Restore`] has the rule.

mod entry;
mod lease;
mod load;
mod phase;
mod report;
mod slices;
mod task;

use std::sync::Arc;

use authority::{Owner, Position, QueueConfig, QueueKey, Task, Time, TokenKey};
use prost::Message;

pub use load::{LoadError, Loader};
pub use slices::Slices;

use super::DecodeError;
use super::error::{need, nothing_skipped};
use entry::{Entry, Kind};

/// The version of the entries. A reader refuses a higher one.
pub const FORMAT: u32 = 2;

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
}

pub fn encode_header(begin: Position, time: Time, out: &mut Vec<u8>) {
    append(Kind::Header(entry::Header { begin: begin.0, time: time.0, format: FORMAT }), out);
}

pub fn encode_task(queue: &QueueKey, task: &Task, out: &mut Vec<u8>) {
    append(Kind::Task(Box::new(task::Task::new(queue, task))), out);
}

pub fn encode_queue(key: &QueueKey, config: &QueueConfig, configured: Position, out: &mut Vec<u8>) {
    append(Kind::Queue(entry::Queue::new(key, config, configured)), out);
}

pub fn encode_owner(owner: &Owner, out: &mut Vec<u8>) {
    append(Kind::Owner(owner.into()), out);
}

pub fn encode_token_key(key: &TokenKey, out: &mut Vec<u8>) {
    append(Kind::TokenKey(key.into()), out);
}

/// Reads the entries of a block in order. It ends after the first error.
pub fn decode_block(block: &[u8]) -> Entries<'_> {
    Entries { rest: block }
}

pub struct Entries<'a> {
    rest: &'a [u8],
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
        let length = prost::decode_length_delimiter(&mut self.rest)?;
        let cut = DecodeError::Invalid("an entry is longer than its block");
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(cut)?;
        self.rest = rest;
        let entry = Entry::decode(bytes)?;
        nothing_skipped(&entry, bytes.len())?;
        need(entry.kind, "the entry")?.try_into()
    }
}

fn append(kind: Kind, out: &mut Vec<u8>) {
    Entry { kind: Some(kind) }.encode_length_delimited(out).expect("a vector grows as needed");
}
