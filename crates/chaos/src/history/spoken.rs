//! What a worker asked and heard, in no contract's words. Every contract's translator gives these, and what they stand
//! for in the coordinator's words is found out in one place.

use std::sync::Arc;

use authority::{LeaseRef, Position, Rejection, TaskError, TaskId, TaskState, Time};
use coordinator::Unavailable;

use crate::contract::Contract;
use crate::facts::At;

#[derive(Clone, Debug)]
pub struct Spoken {
    pub contract: Contract,
    pub sent_at: At,
    pub ended_at: At,
    pub asked: Asked,
    pub heard: Heard,
}

#[derive(Clone, Debug)]
pub enum Asked {
    Poll(Poll),
    Heartbeat(Named),
    Start {
        lease: Named,
        by: String,
    },
    Complete {
        lease: Named,
        result: Arc<[u8]>,
    },
    Fail {
        lease: Named,
        error: TaskError,
        retryable: Option<bool>,
    },
    Release(Named),
    Session {
        worker: String,
        session: String,
    },
    /// From here on another key signs task tokens.
    RotateKey(Arc<str>),
}

#[derive(Clone, Debug, Default)]
pub struct Poll {
    pub worker: String,
    pub session: Option<String>,
    pub queues: Vec<String>,
    pub max_tasks: usize,
    /// The worker's own name for the request.
    pub request: Option<String>,
}

/// The lease that is spoken of.
#[derive(Clone, Debug)]
pub enum Named {
    /// As a worker names it.
    Told {
        /// The lease id, or the task token.
        proof: String,
        /// As whom the worker speaks; None where the proof alone says it.
        worker: Option<String>,
        task: Option<TaskId>,
    },
    /// As the ledger has it, where the server itself speaks of it.
    Recorded(LeaseRef),
}

#[derive(Clone, Debug)]
pub enum Heard {
    /// Nothing: it may have happened or not.
    Lost,
    /// A refusal at the edge, or a word that claims nothing.
    Nothing,
    /// An answer that the contract does not know.
    Nonsense,
    Unavailable(Unavailable),
    Leased(Vec<Leased>),
    /// The lease lives on; until when, not every contract says.
    Extended {
        expires_at: Option<Time>,
        cancel: Option<Arc<str>>,
    },
    Started,
    /// The lease is over.
    Gone,
    Committed(Became),
    Cancelled,
    Rejected(Rejection),
    Released(TaskState),
    Done,
}

/// What became of a task by a report, as far as the contract says it.
#[derive(Clone, Copy, Debug)]
pub enum Became {
    Completed,
    RetryAt(Time),
    Failed,
    Dead,
    /// One of the last two.
    DeadLetter,
}

/// A lease as it was told.
#[derive(Clone, Debug)]
pub struct Leased {
    pub proof: String,
    pub task: TaskId,
    pub attempt: u32,
    pub lease: Position,
    pub queue: String,
    pub payload: Arc<[u8]>,
    /// Where the contract says them.
    pub granted_at: Option<Time>,
    pub expires_at: Option<Time>,
    pub heartbeat_interval_ms: u64,
}

impl Heard {
    /// Whether it may have been done without a word.
    pub fn is_undecided(&self) -> bool {
        match self {
            Heard::Lost => true,
            Heard::Unavailable(why) => *why != Unavailable::Overloaded,
            _ => false,
        }
    }
}
