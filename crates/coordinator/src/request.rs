//! What may be asked of the coordinator, and what it answers. Everything that changes a task is one of the
//! authority's commands; the rest are reads and waits.

use std::sync::Arc;

use authority::command::{ExtendLease, LeaseTasks, RedriveAnswer, Refusal, SubmitAnswer, SubmitTask};
use authority::{
    Answer, Command, HeldLease, ListPage, Position, PushTarget, QueueKey, QueueView, Scope, TaskId,
    TaskState, TaskView, Time, TokenKey,
};

use crate::engine::{Registered, Room};

#[derive(Clone, Debug)]
pub enum Request {
    /// One command, decided at once.
    Decide(Command),
    /// Many submits in one go; each is decided on its own.
    SubmitBatch(Vec<SubmitTask>),
    /// A long poll: answered when something was leased, or empty when `until` has come.
    Poll {
        lease: LeaseTasks,
        until: Time,
    },
    /// A heartbeat, with what the worker says about its progress.
    Heartbeat {
        extend: ExtendLease,
        progress: Option<Progress>,
    },
    /// Many commands about leases in one go; each is decided on its own, in order.
    Together(Vec<Step>),
    Read(Read),
    /// Answered when the task is as wanted, or as it is when `until` has come.
    WaitTask {
        scope: Scope,
        task: TaskId,
        wanted: WaitCondition,
        until: Time,
    },
}

impl Request {
    /// What it holds of payloads, results and texts; the rest of a request is small.
    pub fn bytes(&self) -> usize {
        match self {
            Request::Decide(command) => bytes(command),
            Request::Heartbeat { progress, .. } => text_bytes(progress),
            Request::Together(steps) => steps.iter().map(Step::bytes).sum(),
            Request::SubmitBatch(tasks) => tasks.iter().map(|task| task.payload.len()).sum(),
            _ => 0,
        }
    }
}

/// One of many that are decided in one go.
#[derive(Clone, Debug)]
pub enum Step {
    Decide(Command),
    Heartbeat { extend: ExtendLease, progress: Option<Progress> },
}

impl Step {
    fn bytes(&self) -> usize {
        match self {
            Step::Decide(command) => bytes(command),
            Step::Heartbeat { progress, .. } => text_bytes(progress),
        }
    }
}

fn bytes(command: &Command) -> usize {
    match command {
        Command::SubmitTask(task) => task.payload.len(),
        Command::ReportCompletion(report) => report.result.len(),
        Command::ReportFailure(report) => report.error.message.len(),
        _ => 0,
    }
}

fn text_bytes(progress: &Option<Progress>) -> usize {
    progress.as_ref().and_then(|progress| progress.message.as_ref()).map_or(0, |text| text.len())
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
    /// The scopes that have a queue of this name.
    ScopesWith(Arc<str>),
    /// The queues whose tasks are pushed, over all scopes.
    PushTargets,
    /// The key that signs task tokens.
    TokenKey,
    Status,
    /// The queues of these names, over all scopes, and all others together.
    Depths(Arc<[String]>),
}

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCondition {
    Final,
    /// The same, for the server's own sake: about one wait for each task that is not over. These leave the places of
    /// clients who wait alone.
    FinalForServer,
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
    Answer(Answer),
    Batch(Vec<SubmitAnswer>),
    Task(Option<Box<TaskDetail>>),
    List(ListPage),
    Queue(Option<Box<QueueView>>),
    Queues(Vec<QueueView>),
    Workers(Vec<WorkerView>),
    Leases(Vec<HeldLease>),
    ScopesWith(Vec<Scope>),
    PushTargets(Vec<(Arc<QueueKey>, Arc<PushTarget>)>),
    Together(Vec<Answer>),
    TokenKey(Option<TokenKey>),
    Status(Status),
    Depths(Vec<Depth>),
    Unavailable(Unavailable),
}

impl Reply {
    /// Whether it says no more than that nothing was decided.
    pub fn is_refusal(&self) -> bool {
        match self {
            Reply::Unavailable(_) => true,
            Reply::Answer(Answer::Submitted(answer)) => no_space(answer),
            Reply::Answer(Answer::Redriven(answer)) => {
                matches!(answer, RedriveAnswer::Refused(Refusal::NoSpace))
            }
            Reply::Batch(answers) => answers.iter().all(no_space),
            _ => false,
        }
    }
}

fn no_space(answer: &SubmitAnswer) -> bool {
    matches!(answer, SubmitAnswer::Refused(Refusal::NoSpace))
}

/// A task as people see it: what is recorded, and what its worker said lately.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskDetail {
    pub view: TaskView,
    pub progress: Option<Progress>,
}

/// A worker that was heard of since this process began. Advisory; it never changes a task.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerView {
    pub worker: Arc<str>,
    pub last_heartbeat: Time,
    pub active_leases: usize,
    pub registered: Option<Registered>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub position: Position,
    pub tasks: usize,
    pub state_bytes: usize,
    pub max_state_bytes: usize,
    pub polls: usize,
    pub room: Room,
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
    #[error("the disk is full: nothing can be recorded until space is freed")]
    NoSpace,
    #[error(
        "the ledger failed while the request was being recorded; its outcome is unknown until the next start"
    )]
    OutcomeUnknown,
}
