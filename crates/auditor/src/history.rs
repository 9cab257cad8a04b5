//! A history as the auditor reads it: requests, receipts, records and answers, in the order in which they happened.
//!
//! The simulator and a recording of a real server produce the same entries.

use authority::{Event, Position, Time};
use coordinator::{Reply, Request};

/// Names one request. A request that the network delivers twice keeps its name.
pub type AskId = u64;

#[derive(Clone, Debug)]
pub enum Entry {
    /// Somebody sent a request.
    Asked { ask: AskId, request: Request },
    /// It reached the coordinator, at this time on the coordinator's clock.
    Received { ask: AskId, at: Time },
    /// The record became durable, or was found on the disk at a start.
    Recorded(Recorded),
    /// The answer left the coordinator. Where it is known, `durable` is the newest record that a power cut at this
    /// moment would leave.
    Answered { ask: AskId, reply: Reply, durable: Option<Position> },
    /// The projection applied the record.
    Applied { position: Position, at: Time, event: Event },
    /// The coordinator began to serve again.
    Started,
}

#[derive(Clone, Debug)]
pub struct Recorded {
    pub position: Position,
    pub at: Time,
    pub prev: Option<Position>,
    pub event: Event,
}
