//! Calls: everything that one node may ask of the node that owns the ledger, and the answers.

use std::sync::Arc;

use authority::{Command, LeaseRef, Scope, TaskId, Time};

use crate::engine::{LeaseKey, Liveness, Registered, Registration, WorkerStatus};
use crate::history::History;
use crate::purged::PurgedTask;
use crate::request::{BatchItem, Reply, Request, Unavailable};

/// Most bytes of a history or of a page of tasks that is sent to another node. Beyond it the oldest records are left out,
/// and the page ends.
const MAX_SENT_BYTES: usize = 16 << 20;

#[derive(Clone, Debug)]
pub enum Call {
    /// A request for the engine.
    Ask(Request),
    /// A call of the registry of workers.
    Registry(RegistryCall),
    /// Every record of a task.
    History { scope: Scope, task: TaskId },
    /// How a task ended that was purged.
    PurgedTask { scope: Scope, task: TaskId },
}

#[derive(Clone, Debug)]
pub enum CallReply {
    Asked(Reply),
    Registry(RegistryReply),
    History(Option<History>),
    PurgedTask(Option<PurgedTask>),
    /// The ledger could not be read.
    LedgerError(String),
}

/// What adapters read and write in the registry. The owner's clock counts.
#[derive(Clone, Debug, PartialEq)]
pub enum RegistryCall {
    Register { scope: Scope, worker: Arc<str>, registration: Registration },
    Unregister { scope: Scope, worker: Arc<str>, session: Option<Arc<str>> },
    RecordStatus { scope: Scope, worker: Arc<str>, session: Option<Arc<str>>, status: WorkerStatus },
    RecordHeartbeat { scope: Scope, worker: Arc<str> },
    Registered { scope: Scope, worker: Arc<str> },
    Registrations { tenant: Arc<str>, worker: Arc<str> },
    Offered { scope: Scope },
    Count { tenant: Option<Arc<str>> },
    RegisteredFor,
    NoteLeases { identity: Option<Arc<str>>, leases: Vec<LeaseRef> },
    RefundUpload { lease: LeaseKey, bytes: u64 },
    SetRefused { lease: LeaseRef, is_refused: bool },
    Refused { leases: Vec<LeaseKey> },
}

#[derive(Clone, Debug, PartialEq)]
pub enum RegistryReply {
    Done,
    /// Whether the worker has started anew.
    Started(bool),
    Liveness(Liveness),
    Registered(Option<Registered>),
    Registrations(Vec<Arc<Registration>>),
    Offered(Vec<Arc<authority::Properties>>),
    Count(u64),
    /// For how many more milliseconds some worker stays registered.
    RegisteredForMs(Option<u64>),
    Refused(Vec<LeaseKey>),
}

impl Call {
    /// The bytes of payloads, results and texts; the rest of a call is small.
    pub fn bytes(&self) -> usize {
        match self {
            Call::Ask(request) => request.bytes(),
            Call::Registry(_) | Call::History { .. } | Call::PurgedTask { .. } => 0,
        }
    }

    /// The same call by another clock: what was to wait until some time after `from` waits as long after `to`.
    pub fn rebased(&self, from: Time, to: Time) -> Call {
        let mut call = self.clone();
        if let Some(until) = call.until_mut() {
            *until = to.plus_ms(until.since_ms(from));
        }
        call
    }

    /// Until when the call waits, if it does.
    pub(super) fn until(&self) -> Option<Time> {
        match self {
            Call::Ask(Request::Poll { until, .. } | Request::Wait { until, .. }) => Some(*until),
            _ => None,
        }
    }

    fn until_mut(&mut self) -> Option<&mut Time> {
        match self {
            Call::Ask(Request::Poll { until, .. } | Request::Wait { until, .. }) => Some(until),
            _ => None,
        }
    }

    /// Whether the call may be dropped before its answer: it waits, or it changes nothing.
    pub fn may_be_dropped(&self) -> bool {
        match self {
            Call::Ask(Request::Poll { .. } | Request::Wait { .. } | Request::Read(_)) => true,
            Call::Ask(Request::Decide(_) | Request::Order(_)) | Call::Registry(_) => false,
            Call::History { .. } | Call::PurgedTask { .. } => true,
        }
    }

    /// Whether the call may change what other nodes keep a copy of: keys, token keys and push targets.
    pub(super) fn configures(&self) -> bool {
        let configures =
            |command: &_| matches!(command, Command::ConfigureQueue(_) | Command::RotateTokenKey(_));
        self.changes_keys() || self.has_command(configures)
    }

    /// Whether the call may change the API keys.
    pub(super) fn changes_keys(&self) -> bool {
        self.has_command(|command| matches!(command, Command::CreateKey(_) | Command::RevokeKey(_)))
    }

    fn has_command(&self, is_it: impl Fn(&Command) -> bool) -> bool {
        let Call::Ask(Request::Decide(batch)) = self else { return false };
        batch.iter().any(|item| match item {
            BatchItem::Command(command) => is_it(command),
            BatchItem::Heartbeat { .. } => false,
        })
    }
}

impl CallReply {
    /// Why there is no answer, if there is none.
    pub(super) fn unavailable(&self) -> Option<Unavailable> {
        match self {
            CallReply::Asked(Reply::Unavailable(why)) => Some(*why),
            _ => None,
        }
    }

    /// The reply, as far as it is sent to another node.
    pub(super) fn bounded(mut self) -> CallReply {
        if let CallReply::Asked(Reply::List(page)) = &mut self {
            page.cut_to(MAX_SENT_BYTES);
        }
        if let CallReply::History(Some(history)) = &mut self {
            let mut encoded = Vec::new();
            let fit = history.records.iter().rev().take_while(|record| {
                ledger::record::encode(record.at, None, &record.event, &mut encoded);
                encoded.len() <= MAX_SENT_BYTES
            });
            let left_out = history.records.len() - fit.count();
            history.records.drain(..left_out);
            history.truncated |= left_out > 0;
        }
        self
    }
}
