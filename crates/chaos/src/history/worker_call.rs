//! A call of a worker and its response, independent of the contract. Every contract's parser produces these, and one
//! place converts them to the coordinator's types.

use std::sync::Arc;

use authority::{LeaseRef, Position, Rejection, TaskError, TaskId, TaskState, Time};
use coordinator::Unavailable;

use crate::contract::Contract;
use crate::recorder::At;

#[derive(Clone, Debug)]
pub(super) struct WorkerCall {
    pub contract: Contract,
    pub sent_at: At,
    pub ended_at: At,
    pub request: WorkerRequest,
    pub response: WorkerResponse,
}

#[derive(Clone, Debug)]
pub(super) enum WorkerRequest {
    Poll(Poll),
    Heartbeat(LeaseName),
    Start {
        lease: LeaseName,
        by: String,
    },
    Complete {
        lease: LeaseName,
        result: Arc<[u8]>,
    },
    Fail {
        lease: LeaseName,
        error: TaskError,
        retryable: Option<bool>,
    },
    Release(LeaseName),
    Session {
        worker: String,
        session: String,
    },
    /// From here on another key signs task tokens.
    RotateKey(Arc<str>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Poll {
    pub worker: String,
    pub session: Option<String>,
    pub queues: Vec<String>,
    pub max_tasks: usize,
    /// The worker's own name for the request.
    pub request: Option<String>,
}

/// The lease that a request names.
#[derive(Clone, Debug)]
pub(super) enum LeaseName {
    /// As a worker names it.
    FromWorker {
        /// The lease id, or the task token.
        proof: String,
        /// The worker id of the request; None where the proof alone names the worker.
        worker: Option<String>,
        task: Option<TaskId>,
    },
    /// As the ledger has it, in requests of the server itself.
    Recorded(LeaseRef),
}

#[derive(Clone, Debug)]
pub(super) enum WorkerResponse {
    /// Nothing: it may have happened or not.
    Lost,
    /// A refusal at the edge, or an answer that claims nothing.
    Nothing,
    /// An answer that the contract does not know.
    Invalid,
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
    Committed(ReportOutcome),
    Cancelled,
    Rejected(Rejection),
    Released(TaskState),
    Done,
}

/// What became of a task by a report, as far as the contract says it.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReportOutcome {
    Completed,
    RetryAt(Time),
    Failed,
    Dead,
    /// One of the last two.
    DeadLetter,
}

/// A lease as the contract describes it.
#[derive(Clone, Debug)]
pub(super) struct Leased {
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

impl WorkerResponse {
    /// Whether the request may have taken effect without an answer.
    pub(super) fn is_undecided(&self) -> bool {
        match self {
            WorkerResponse::Lost => true,
            WorkerResponse::Unavailable(why) => *why != Unavailable::Overloaded,
            _ => false,
        }
    }
}
