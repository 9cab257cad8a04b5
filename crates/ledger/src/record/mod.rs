//! Encodes the authority's facts as bytes: events as records, the state as snapshot entries.
//!
//! Both are protobuf messages with stable tags, listed in `docs/records.md`. Decoding never panics, refuses what it does
//! not know unless that may be ignored, and allocates in proportion to its input. Nothing here knows where the bytes are
//! stored: framing and checksums belong to the storage backend.

mod codec;
mod error;
mod message;
mod queue_keys;
mod reader;
pub mod snapshot;
mod task_finder;
mod value;

use authority::{Event, Position, Time};

pub use error::DecodeError;
pub use reader::Reader;
pub use task_finder::TaskFinder;

use codec::{Field, Fields};

/// One decision, as it stands in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub at: Time,
    /// The record before this one about the same task. None for a task's first record, and for records that
    /// are not about one task.
    pub prev: Option<Position>,
    pub event: Event,
}

impl Record {
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self.at, self.prev, &self.event, out);
    }
}

/// Appends a record to `out`. The caller keeps its length.
pub fn encode(at: Time, prev: Option<Position>, event: &Event, out: &mut Vec<u8>) {
    at.encode(1, out);
    prev.encode(2, out);
    message::encode_event(event, out);
}

/// Decodes the time of a record alone.
pub fn time(bytes: &[u8]) -> Result<Time, DecodeError> {
    Field::decode(1, "the time", &mut Fields(bytes))
}

/// Decodes one record that fills `bytes`.
pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
    let mut fields = Fields(bytes);
    let at = Field::decode(1, "the time", &mut fields)?;
    let prev = Field::decode(2, "the previous record", &mut fields)?;
    let (tag, event) = fields.next_block()?.ok_or(DecodeError::Missing("the event"))?;
    let event = message::decode_event(tag, event)?;
    fields.finish()?;
    Ok(Record { at, prev, event })
}
