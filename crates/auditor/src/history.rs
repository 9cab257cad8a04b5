//! A history as the auditor reads it: requests, receipts, records and answers, in the order in which they happened.
//!
//! The simulator and a recording of a real server produce the same entries.

use std::sync::Arc;

use authority::{Event, Position, Time};
use coordinator::{Reply, Request};
use ledger::Link;
use ledger::postgres::Place;

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
    /// Another batch was stored where this one had been durable. Whoever decided so could know what nodes had held at `since`, a
    /// true time, but for those that are excused: nobody could hear of them.
    Lost { place: Place, since: u64, excused: Vec<u64> },
    /// The process of a node holds nothing any more, or nothing of what it wanted to append itself.
    Forgot { node: u64, own_alone: bool },
    /// A batch of an owner has reached another node. `now` is the true time in milliseconds.
    Fed { node: u64, before: Place, place: Place, now: u64 },
    /// A node has read a batch from the database.
    Read { node: u64, place: Place, now: u64 },
    /// A node has begun to append a batch.
    Begun { node: u64, place: Place, now: u64 },
    /// A node has learned from the owner that the batches before `next` are durable.
    LearnedDurable { node: u64, next: Position },
    /// An owner has appended the batches before `next`, and answers what rests on them.
    Appended { node: u64, next: Position, is_first: bool },
    /// A standby has applied every record before `next`.
    Followed { node: u64, next: Position },
    /// A node owns nothing any more, because the database has another history than it from this position on.
    Refused { node: u64, at: Position },
    /// The owner at this epoch gives the ledger up, because another node owns it.
    GaveUp { node: u64, epoch: u64 },
    /// A new owner begins with this time on its clock. `now` is the true time in milliseconds.
    Clock { epoch: u64, now: u64, time: Time },
    /// A batch of this epoch was stored by a server that was replaced already, so that it never counts.
    StoredInVain { epoch: u64 },
    /// An owner has announced itself and its time to the others.
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
