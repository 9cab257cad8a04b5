//! How the authority's facts become bytes: events as records, the state as snapshot entries.
//!
//! Both are protobuf messages with stable tags, listed in `docs/records.md`. Decoding never panics, refuses what
//! it does not know instead of skipping it, and allocates in proportion to its input. Nothing here knows where
//! the bytes are kept: framing and checksums belong to the home of the ledger.

mod envelope;
mod error;
mod event;
mod reader;
pub mod snapshot;
mod value;

use authority::{Event, Position, Time};
use prost::Message;

pub use error::DecodeError;
pub use reader::Reader;

use envelope::{Envelope, Kind};
use error::{need, nothing_skipped};

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

/// Appends a record to `out`. Its length is for the caller to keep.
pub fn encode(at: Time, prev: Option<Position>, event: &Event, out: &mut Vec<u8>) {
    let envelope = Envelope { at: at.0, prev: prev.map(|prev| prev.0), kind: Some(Kind::from(event)) };
    envelope.encode(out).expect("a vector grows as needed");
}

/// Reads one record that fills `bytes`.
pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
    let envelope: Envelope = decode_whole(bytes)?;
    Ok(Record {
        at: Time(envelope.at),
        prev: envelope.prev.map(Position),
        event: need(envelope.kind, "the event")?.try_into()?,
    })
}

/// Reads one message that fills `bytes`.
fn decode_whole<M: Message + Default>(bytes: &[u8]) -> Result<M, DecodeError> {
    let message = M::decode(bytes)?;
    nothing_skipped(&message, bytes.len())?;
    Ok(message)
}
