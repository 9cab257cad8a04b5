//! Messages between nodes.

use authority::{Position, Time};
use coordinator::engine::ReplyTo;
use coordinator::{Reply, Request};
use ledger::postgres::{BatchRow, Place};

use super::NodeId;
use crate::env::Ticket;

/// Names an attempt of an edge to have a call answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub call: u64,
    pub number: u64,
}

pub(crate) enum Message {
    /// A request for the owner at this epoch. What it waits for is counted from its arrival.
    Call {
        attempt: Attempt,
        epoch: u64,
        request: Request,
        ticket: Ticket,
    },
    /// Nothing when the node is not the owner.
    Reply {
        attempt: Attempt,
        epoch: u64,
        reply: Option<Reply>,
    },
    /// A standby asks for the stream of the owner.
    Subscribe {
        stream: u64,
        epoch: u64,
        after: Place,
    },
    Batch {
        stream: u64,
        epoch: u64,
        before: Place,
        row: BatchRow,
    },
    Durable {
        stream: u64,
        epoch: u64,
        next: Position,
        time: Time,
    },
    StreamEnd {
        stream: u64,
    },
    Received {
        stream: u64,
        next: Position,
    },
}

/// Where the owner sends an answer.
#[derive(Clone)]
pub(crate) struct CallTicket {
    pub ask: u64,
    pub edge: (NodeId, u64),
    pub attempt: Attempt,
    pub ticket: Ticket,
}

impl ReplyTo for CallTicket {
    fn is_closed(&self) -> bool {
        self.ticket.gone.get()
    }
}
