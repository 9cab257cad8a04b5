//! Requests to the coordinator and their replies. Everything that changes a task is one of the authority's commands; the
//! rest are reads and waits.

use std::sync::Arc;

use authority::command::{ExtendLease, Grant, LeaseTasks, RedriveAnswer, Refusal, SubmitAnswer};
use authority::{
    Answer, Command, HeldLease, ListPage, Position, PushTarget, QueueKey, QueueView, Scope, StoredKey,
    TaskId, TaskState, TaskView, TenantUsage, Time, TokenKey,
};
use smallvec::{SmallVec, smallvec};

use crate::engine::{ChargeUpload, DiskSpace, FindHeld, HeldLeases, MAX_DRAINED, Registered, UploadCharge};

#[derive(Clone, Debug)]
pub enum Request {
    /// Items that are decided in order, each on its own.
    Decide(Batch),
    /// A long poll: answered when something was leased, or empty when `until` has come.
    Poll {
        lease: LeaseTasks,
        until: Time,
    },
    /// Answered when the task meets the condition, or as the task is when `until` has come.
    Wait {
        scope: Scope,
        task: TaskId,
        condition: WaitCondition,
        until: Time,
    },
    Read(Read),
    Order(OrderWorker),
}

/// An order of the operator for a worker, in all workspaces of its tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderWorker {
    pub tenant: Arc<str>,
    pub worker: Arc<str>,
    pub order: Order,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Grant the worker nothing more; it finishes what it holds.
    Drain,
    /// The same, and ask its sessions to stop.
    Stop,
    /// End a drain, and take back a request to stop.
    Resume,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderRefusal {
    #[error("no worker of this name was seen since the coordinator started")]
    UnknownWorker,
    #[error("{MAX_DRAINED} workers are drained already; resume some of them first")]
    TooManyDrained,
}

/// What is decided in one go. Most batches have one item, which takes no allocation.
pub type Batch = SmallVec<[BatchItem; 1]>;
/// The answers to a batch, one for each item and in the same order.
pub type Answers = SmallVec<[Answer; 1]>;

#[derive(Clone, Debug)]
pub enum BatchItem {
    Command(Command),
    /// An extension of a lease, with what the worker says about its progress.
    Heartbeat {
        extend: ExtendLease,
        progress: Option<Progress>,
    },
}

impl Request {
    /// A batch of one command.
    pub fn decide(command: Command) -> Request {
        Request::Decide(smallvec![BatchItem::Command(command)])
    }

    /// A batch of one heartbeat.
    pub fn heartbeat(extend: ExtendLease, progress: Option<Progress>) -> Request {
        Request::Decide(smallvec![BatchItem::Heartbeat { extend, progress }])
    }

    /// The command of a batch that has one item.
    pub fn command(&self) -> Option<&Command> {
        match self {
            Request::Decide(batch) => match &batch[..] {
                [BatchItem::Command(command)] => Some(command),
                _ => None,
            },
            _ => None,
        }
    }

    /// The bytes of payloads, results and texts; the rest of a request is small.
    pub fn bytes(&self) -> usize {
        match self {
            Request::Decide(batch) => batch.iter().map(BatchItem::bytes).sum(),
            _ => 0,
        }
    }
}

impl BatchItem {
    fn bytes(&self) -> usize {
        match self {
            BatchItem::Command(Command::SubmitTask(task)) => task.payload.len(),
            BatchItem::Command(Command::ReportCompletion(report)) => report.result.len(),
            BatchItem::Command(Command::ReportFailure(report)) => report.error.message.len(),
            BatchItem::Command(_) => 0,
            BatchItem::Heartbeat { progress, .. } => {
                let text = progress.as_ref().and_then(|progress| progress.message.as_ref());
                text.map_or(0, |text| text.len())
            }
        }
    }
}

#[derive(Clone, Debug)]
pub enum Read {
    Task {
        scope: Scope,
        task: TaskId,
    },
    List {
        scope: Scope,
        queue: Option<Arc<str>>,
        state: Option<TaskState>,
        after: Option<(Arc<str>, Position)>,
        limit: usize,
    },
    Queue(QueueKey),
    Queues(Scope),
    Workers(Scope),
    /// What a worker holds.
    Leases {
        scope: Scope,
        worker: Arc<str>,
    },
    /// What a worker holds, in all workspaces of its tenant.
    TenantLeases {
        tenant: Arc<str>,
        worker: Arc<str>,
    },
    /// A worker in all workspaces of its tenant.
    Worker {
        tenant: Arc<str>,
        worker: Arc<str>,
    },
    /// The scopes that have a queue of this name.
    ScopesWith(Arc<str>),
    /// The queues whose tasks are pushed, over all scopes.
    PushTargets,
    /// The key that signs task tokens.
    TokenKey,
    /// The API keys that live.
    Keys,
    Status,
    /// The queues of these names, over all scopes, and all others together.
    Depths(Arc<[String]>),
    /// What a tenant uses; its queues of these names, over all workspaces, and all others together.
    Tenant {
        tenant: Arc<str>,
        names: Arc<[String]>,
    },
    /// Which leases a worker identity holds.
    Held(Box<FindHeld>),
    /// Counts an upload for a lease that a worker identity holds. Nothing is recorded, and a repeat counts again.
    ChargeUpload(ChargeUpload),
}

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCondition {
    Final,
    /// The same, for the server itself: about one wait for each task that is not over. These do not count against the
    /// limit of clients.
    FinalForServer,
    /// The lease with this fencing token is over, for the server itself: at most one wait for each lease.
    LeaseOverForServer(Position),
    /// Any record of the task after this one.
    ChangeAfter(Position),
}

/// A worker's own words on how far it is. Soft: it is lost with the process and decides nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub percent: Option<f64>,
    pub message: Option<Arc<str>>,
    pub at: Time,
}

#[derive(Clone, Debug)]
pub enum Reply {
    Decided(Answers),
    Leased(Vec<Grant>),
    Task(Option<Box<TaskDetail>>),
    List(ListPage),
    Queue(Option<Box<QueueView>>),
    Queues(Vec<QueueView>),
    Workers(Vec<WorkerView>),
    Leases(Vec<HeldLease>),
    Worker(Option<Box<TenantWorker>>),
    Ordered(Result<(), OrderRefusal>),
    ScopesWith(Vec<Scope>),
    PushTargets(Vec<(Arc<QueueKey>, Arc<PushTarget>)>),
    TokenKey(Option<TokenKey>),
    Keys(Vec<StoredKey>),
    Status(Status),
    Depths(Vec<Depth>),
    Tenant(Box<TenantStatus>),
    Held(Box<HeldLeases>),
    UploadCharged(UploadCharge),
    Unavailable(Unavailable),
}

impl Reply {
    /// The reply to a batch of one item.
    pub fn decided(answer: Answer) -> Reply {
        Reply::Decided(smallvec![answer])
    }

    /// The answer to a batch of one item.
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Reply::Decided(answers) if answers.len() == 1 => answers.first(),
            _ => None,
        }
    }

    /// Whether the reply says no more than that nothing was decided.
    pub fn is_refusal(&self) -> bool {
        match self {
            Reply::Unavailable(_) => true,
            Reply::Decided(answers) => answers.iter().all(no_space),
            _ => false,
        }
    }
}

fn no_space(answer: &Answer) -> bool {
    matches!(
        answer,
        Answer::Submitted(SubmitAnswer::Refused(Refusal::NoSpace))
            | Answer::Redriven(RedriveAnswer::Refused(Refusal::NoSpace))
    )
}

/// A task as people see it: what is recorded, and what its worker said lately.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskDetail {
    pub view: TaskView,
    pub progress: Option<Progress>,
}

/// A worker that was seen since this process began.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerView {
    pub worker: Arc<str>,
    pub last_heartbeat: Time,
    pub active_leases: usize,
    pub registered: Option<Registered>,
    /// The operator has drained it.
    pub is_drained: bool,
}

/// A worker in all workspaces of its tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantWorker {
    /// Where it was seen last.
    pub view: WorkerView,
    /// What it holds, in all workspaces.
    pub leases: Vec<HeldLease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub position: Position,
    pub tasks: usize,
    pub state_bytes: usize,
    pub max_state_bytes: usize,
    pub final_bytes: usize,
    pub max_final_bytes: usize,
    pub queues: usize,
    pub tenants: usize,
    /// The memory of the tenant that uses most.
    pub largest_tenant_bytes: usize,
    pub polls: usize,
    pub disk_space: DiskSpace,
}

/// What one tenant uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantStatus {
    pub usage: TenantUsage,
    /// One for each queue that was named, and one for all others.
    pub depths: Vec<Depth>,
}

/// How much waits and runs in some queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    pub waiting: u64,
    pub leased: u64,
    /// When the oldest task was created that could be leased now.
    pub oldest_waiting: Option<Time>,
}

/// Why there is no answer. Nothing is known to have happened, except where it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("the coordinator is shutting down or has stopped")]
    Stopped,
    #[error("the coordinator has too much to do right now")]
    Overloaded,
    #[error("no node serves requests right now: the last owner of the ledger is gone, or cannot be reached")]
    NoOwner,
    #[error(
        "no standby receives what is recorded, and answers wait for one (cluster.answers_wait_for_standby): start another node"
    )]
    NoStandby,
    #[error("this node and the one that owns the ledger do not understand each other: their versions differ")]
    NotUnderstood,
    #[error("the disk is full: nothing can be recorded until space is freed")]
    NoSpace,
    #[error(
        "the ledger failed while the request was being recorded; its outcome is unknown until the next start"
    )]
    OutcomeUnknown,
}
