//! The frames on a connection between two nodes. The node that connects asks; the other one answers.

use std::sync::Arc;

use authority::{Position, Time};
use coordinator::{Call, CallReply, NodeAddress, Notice, OwnerHint};
use ledger::postgres::{BatchRow, Place};

use crate::codec::{DecodeError, Wire, encode, enums, structs};

/// The version of the frames. A node refuses a version that it does not know.
pub(crate) const VERSION: u32 = 1;
/// The largest frame. A call is a batch of tasks at most, and an answer is bounded by its owner.
pub(crate) const MAX_FRAME_BYTES: usize = 128 << 20;
/// The only shard of this version.
pub(crate) const SHARD: u32 = 0;

/// What the node that connects sends.
pub(crate) enum Upward {
    /// The first frame.
    Hello {
        version: u32,
        node: String,
        instance: u64,
        connection: u64,
    },
    Ask {
        id: u64,
        shard: u32,
        epoch: u64,
        call: Call,
    },
    /// Nobody waits for the answer to this call any more.
    Cancel {
        id: u64,
    },
    Ping {},
    /// Asks for the batches of the owner after the given one.
    Tail {
        shard: u32,
        epoch: u64,
        after: Place,
    },
    /// The batches before this position are held.
    Received {
        next: Position,
    },
    /// The node takes no more batches: another one is to get them.
    Untail {},
    /// The node follows the configuration of the owner, and has it up to this change. An older node never says so, and is not
    /// waited for.
    Followed {
        change: u64,
    },
    /// The node owns the ledger now: for one that may not see it in the database.
    Owns {
        owner: OwnerHint,
    },
}

/// What the node that was connected to sends.
pub(crate) enum Downward {
    /// The first frame.
    Welcome {
        version: u32,
        node: String,
    },
    Answer {
        id: u64,
        reply: CallReply,
        /// Everything that the answer rests on is at or before this position.
        durable: Position,
    },
    NotOwner {
        id: u64,
        hint: OwnerHint,
    },
    NotUnderstood {
        id: u64,
        what: String,
    },
    Overloaded {
        id: u64,
    },
    Notice {
        notice: Notice,
    },
    Pong {},
    /// A batch that is being appended, and the place before it.
    Batch {
        epoch: u64,
        before: Place,
        batch: StreamedBatch,
    },
    /// The batches before this position are durable, and the owner has this time.
    Durable {
        epoch: u64,
        next: Position,
        now: Time,
    },
    /// No more batches come: the other node must read from the database, and may ask again then.
    TailEnd {},
}

/// A batch as it is stored.
pub(crate) struct StreamedBatch {
    place: Place,
    at: u64,
    epoch: u64,
    codec: u32,
    body: Arc<[u8]>,
}

impl From<BatchRow> for StreamedBatch {
    fn from(row: BatchRow) -> StreamedBatch {
        let BatchRow { place, at, epoch, codec, body, .. } = row;
        StreamedBatch { place, at: at as u64, epoch: epoch as u64, codec: codec as u32, body }
    }
}

impl From<StreamedBatch> for BatchRow {
    fn from(batch: StreamedBatch) -> BatchRow {
        let StreamedBatch { place, at, epoch, codec, body } = batch;
        BatchRow::received(place, at as i64, epoch as i64, codec as i16, body)
    }
}

structs! {
    NodeAddress { 1 node, 2 address }
    OwnerHint { 1 epoch, 2 owner }
    Place { 1 first, 2 next, 3 link }
    StreamedBatch { 1 place, 2 at, 3 epoch, 4 codec, 5 body }
    Notice { 1 takes_work, 2 durable, 3 now, 4 registered, 5 ordered, 6 configured, 7 change }
}

enums! {
    Upward {
        1 Hello { 1 version: version, 2 node: node, 3 instance: instance, 4 connection: connection };
        2 Ask { 1 id: id, 2 shard: shard, 3 epoch: epoch, 4 call: call };
        3 Cancel { 1 id: id };
        4 Ping {};
        5 Tail { 1 shard: shard, 2 epoch: epoch, 3 after: after };
        6 Received { 1 next: next };
        7 Untail {};
        8 Followed { 1 change: change };
        9 Owns { 1 owner: owner };
    }
    Downward {
        1 Welcome { 1 version: version, 2 node: node };
        2 Answer { 1 id: id, 2 reply: reply, 3 durable: durable };
        3 NotOwner { 1 id: id, 2 hint: hint };
        4 NotUnderstood { 1 id: id, 2 what: what };
        5 Overloaded { 1 id: id };
        6 Notice { 1 notice: notice };
        7 Pong {};
        8 Batch { 1 epoch: epoch, 2 before: before, 3 batch: batch };
        9 Durable { 1 epoch: epoch, 2 next: next, 3 now: now };
        10 TailEnd {};
    }
}

impl Upward {
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Upward, DecodeError> {
        Upward::get(bytes)
    }

    /// The id of a call that cannot be decoded, so that its sender can be told.
    pub(crate) fn id_of_ask(bytes: &[u8]) -> Option<u64> {
        id(bytes, 2)
    }
}

impl Downward {
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Downward, DecodeError> {
        Downward::get(bytes)
    }

    /// The id of an answer that cannot be decoded.
    pub(crate) fn id_of_answer(bytes: &[u8]) -> Option<u64> {
        id(bytes, 2)
    }
}

fn id(bytes: &[u8], variant: u8) -> Option<u64> {
    let fields = bytes.strip_prefix(&[variant])?;
    match crate::codec::Fields(fields).next() {
        Ok(Some((1, id))) => u64::get(id).ok(),
        _ => None,
    }
}
