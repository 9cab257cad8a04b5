//! A history as the auditor reads it: requests, receipts, records and answers, in the order in which they happened.
//!
//! The simulator and a recording of a real server produce the same entries.

use std::sync::Arc;

use authority::{Event, Position, Time};
use coordinator::{Reply, Request};
use ledger::Link;

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
    /// The answer that follows was given by the owner at this epoch.
    AnsweredBy { ask: AskId, epoch: u64 },
    /// A node stored a batch in the database that all nodes share.
    Stored(StoredBatch),
    /// A failover of the database has undone what is not before `next`.
    Undone { next: Position, link: Link, names_owner: bool },
    /// Another batch was stored where one had been durable. A node that lives and was never cut off may hold what was lost.
    Lost { from: Position, held_by: Option<u64> },
    /// A standby holds every batch up to and including this one.
    Held { next: Position, link: Link },
    /// An owner answers what rests on the batches before `next`.
    Appended { next: Position },
    /// A standby has applied every record before `next`.
    Followed { node: u64, next: Position },
    /// The owner at this epoch gives the ledger up, because another node owns it.
    GaveUp { node: u64, epoch: u64 },
    /// A new owner begins with this time on its clock. `now` is the true time in milliseconds.
    Clock { epoch: u64, now: u64, time: Time },
    /// A batch of this epoch was stored by a server that was replaced already, so that it never counts.
    StoredInVain { epoch: u64 },
    /// An owner has told the others of itself and of its time.
    Announced { epoch: u64 },
}

/// A batch as it is stored.
#[derive(Clone, Debug)]
pub struct StoredBatch {
    pub node: u64,
    pub epoch: u64,
    pub first: Position,
    pub next: Position,
    pub link: Link,
    pub body: Arc<[u8]>,
}

#[derive(Clone, Debug)]
pub struct Recorded {
    pub position: Position,
    pub at: Time,
    pub prev: Option<Position>,
    pub event: Event,
}
