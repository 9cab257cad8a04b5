//! A record with its position, as histories and projections use it.

use authority::{Event, Position, Time};

/// An event with its position in the ledger and the time at which it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRecord {
    pub position: Position,
    pub at: Time,
    pub event: Event,
}
