//! A task, its lease, and what its attempts reported.

use std::sync::Arc;

use crate::event::TaskCreated;
use crate::field::HeapBytes;
use crate::{
    Backoff, CancelCause, Contract, DeadReason, Digest, LeaseRef, Position, Properties, QueueKey,
    QueueSettings, ReportDetails, TaskError, TaskId, TaskOptions, Time,
};

/// The five states, and no sixth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskState {
    Waiting,
    Leased,
    Completed,
    Failed,
    Dead,
}

/// A unit of work with an opaque payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub id: TaskId,
    pub payload: Arc<[u8]>,
    pub priority: i32,
    /// How often the task was granted.
    pub attempt: u32,
    /// How often it was given back at no cost.
    pub releases: u32,
    pub created_at: Time,
    pub created: Position,
    /// The task's newest record; its history is a walk back from here.
    pub last: Position,
    pub phase: Phase,
    /// Once set, no path leads back to WAITING.
    pub cancel: Option<Box<CancelRequest>>,
    /// The reports of past attempts, with their outcomes.
    pub reports: Vec<Report>,
    /// How the newest failed attempt failed.
    pub last_error: Option<Box<TaskError>>,
    /// What the newest report added, with the newest partial progress of a task that has not completed.
    pub details: Option<Arc<ReportDetails>>,
    pub properties: Arc<Properties>,
    /// What most tasks do not have.
    pub options: Option<Arc<TaskOptions>>,
    /// Waiters of a merged execution.
    pub operations: Vec<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// `since` is the record that made the task wait; it orders the queue. An exhausted task lost its last
    /// attempt to time and only waits for its TaskDead.
    Waiting {
        since: Position,
        not_before: Option<Time>,
        exhausted: bool,
    },
    Leased(Box<Lease>),
    Completed {
        at: Time,
        ended: Position,
        result: Arc<[u8]>,
    },
    Failed {
        at: Time,
        ended: Position,
    },
    Dead {
        at: Time,
        ended: Position,
        reason: DeadReason,
        detail: Option<Arc<str>>,
    },
}

/// The right to report on one attempt until a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The position of its LeaseGranted: unique and ever increasing.
    pub fencing_token: Position,
    pub worker: Arc<str>,
    pub session: Option<Arc<str>>,
    /// A digest of the request that asked for it, so that a repeated request gets the same lease.
    pub request: Option<Digest>,
    pub granted_at: Time,
    /// The length asked for; it is granted for a tenth more, see [`crate::command::ExtendLease`].
    pub length_ms: u64,
    pub expires_at: Time,
    /// When the lease was granted or last extended.
    pub extended_at: Time,
    /// Who really began the attempt, where a contract says so.
    pub started_by: Option<Arc<str>>,
    /// Unknown for a lease that format 2 or before recorded.
    pub contract: Option<Contract>,
    /// The record that the task's place in the queue counted from. Unknown in a snapshot of format 2 or before.
    pub since: Option<Position>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelRequest {
    pub cause: CancelCause,
    pub reason: Arc<str>,
    pub requested_at: Time,
    pub grace_until: Time,
}

impl CancelCause {
    /// Why the task is dead when it ends because of this request.
    pub fn dead_reason(self) -> DeadReason {
        match self {
            CancelCause::User => DeadReason::Cancelled,
            CancelCause::Deadline => DeadReason::Deadline,
        }
    }
}

/// The report of one attempt, and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub attempt: u32,
    pub fencing_token: Position,
    pub digest: Digest,
    pub outcome: Outcome,
}

/// What a report led to. All but `Discarded` were answered COMMITTED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Completed,
    Failed,
    RetryAt(Time),
    Dead(DeadReason),
    /// The attempt had no authority any more: answered CANCELLED.
    Discarded,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dedup {
    pub key: Arc<str>,
    /// Of payload and properties as parsed JSON.
    pub content: Digest,
}

/// A lease that a worker holds, as it would name it itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLease {
    pub lease: LeaseRef,
    /// The name of the task's queue.
    pub queue: Arc<str>,
    pub session: Option<Arc<str>>,
    pub contract: Option<Contract>,
}

/// A task with its queue's name and the settings in force for it, for answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskView {
    pub queue: Arc<QueueKey>,
    pub task: Task,
    pub settings: TaskSettings,
}

/// The settings in force for a task: its own, and its queue's where the task has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskSettings {
    pub max_attempts: u32,
    pub heartbeat_interval_ms: u64,
    pub cancel_grace_ms: u64,
}

impl Task {
    pub fn state(&self) -> TaskState {
        match self.phase {
            Phase::Waiting { .. } => TaskState::Waiting,
            Phase::Leased(_) => TaskState::Leased,
            Phase::Completed { .. } => TaskState::Completed,
            Phase::Failed { .. } => TaskState::Failed,
            Phase::Dead { .. } => TaskState::Dead,
        }
    }

    pub fn is_final(&self) -> bool {
        self.ended().is_some()
    }

    /// When and by which record the task became final.
    pub fn ended(&self) -> Option<(Time, Position)> {
        match self.phase {
            Phase::Completed { at, ended, .. }
            | Phase::Failed { at, ended }
            | Phase::Dead { at, ended, .. } => Some((at, ended)),
            Phase::Waiting { .. } | Phase::Leased(_) => None,
        }
    }

    /// The record that the task's place in the queue counts from, while it waits.
    pub fn waiting_since(&self) -> Option<Position> {
        match self.phase {
            Phase::Waiting { since, .. } => Some(since),
            _ => None,
        }
    }

    pub fn lease(&self) -> Option<&Lease> {
        match &self.phase {
            Phase::Leased(lease) => Some(lease),
            _ => None,
        }
    }

    pub fn deadline(&self) -> Option<Time> {
        self.options.as_ref().and_then(|options| options.deadline)
    }

    pub fn timeout_ms(&self) -> Option<u64> {
        self.options.as_ref().and_then(|options| options.timeout_ms)
    }

    pub fn lease_ms(&self, settings: &QueueSettings) -> u64 {
        self.options.as_ref().and_then(|options| options.lease_ms).unwrap_or(settings.lease_ms)
    }

    pub fn max_attempts(&self, settings: &QueueSettings) -> u32 {
        self.options.as_ref().and_then(|options| options.max_attempts).unwrap_or(settings.max_attempts)
    }

    /// The settings in force for the task.
    pub fn settings(&self, queue: &QueueSettings) -> TaskSettings {
        let lease_ms = self.lease().map_or_else(|| self.lease_ms(queue), |lease| lease.length_ms);
        TaskSettings {
            max_attempts: self.max_attempts(queue),
            heartbeat_interval_ms: queue.heartbeat_interval_for(lease_ms),
            cancel_grace_ms: queue.cancel_grace_ms,
        }
    }

    pub fn backoff(&self, settings: &QueueSettings) -> Backoff {
        self.options.as_ref().and_then(|options| options.backoff).unwrap_or(settings.backoff)
    }

    /// Attempts that count against the limit.
    pub fn used_attempts(&self) -> u32 {
        self.attempt - self.releases
    }

    /// The partial progress that the next attempt receives.
    pub fn partial_progress(&self) -> Option<&Arc<[u8]>> {
        self.details.as_ref().and_then(|details| details.partial_progress.as_ref())
    }

    /// Keeps the details of a failed attempt. Partial progress stays until there is newer.
    pub(crate) fn note_details(&mut self, details: Option<&Arc<ReportDetails>>) {
        let earlier = self.partial_progress().cloned();
        self.details = match details {
            Some(details) if earlier.is_none() || details.partial_progress.is_some() => Some(details.clone()),
            _ => earlier.map(|earlier| {
                let details = details.map(|details| (**details).clone()).unwrap_or_default();
                Arc::new(ReportDetails { partial_progress: Some(earlier), ..details })
            }),
        };
    }

    /// Most tasks have one report, so the first one takes the space of one.
    pub(crate) fn add_report(&mut self, report: Report) {
        if self.reports.is_empty() {
            self.reports.reserve_exact(1);
        }
        self.reports.push(report);
    }

    pub fn report_of(&self, lease: Position) -> Option<&Report> {
        self.reports.iter().find(|report| report.fencing_token == lease)
    }

    /// A fair estimate of the memory that the task takes, indexes included.
    pub(crate) fn bytes(&self) -> usize {
        let phase = match &self.phase {
            Phase::Leased(lease) => {
                let texts = [&lease.session, &lease.started_by];
                160 + lease.worker.len()
                    + texts.into_iter().flatten().map(|text| text.len() + 16).sum::<usize>()
            }
            Phase::Completed { result, .. } => result.len() + 16,
            Phase::Dead { detail: Some(detail), .. } => detail.len() + 16,
            _ => 0,
        };
        bytes_when_created(&self.payload, self.options.as_deref(), &self.properties)
            + phase
            + self.reports.len() * size_of::<Report>()
            + self.cancel.as_ref().map_or(0, |cancel| cancel.reason.len() + 64)
            + self.last_error.as_ref().map_or(0, |error| error.heap_bytes())
            + self.details.as_ref().map_or(0, |details| 80 + details.collect_fields::<HeapBytes>().0)
            + self.operations.iter().map(|name| operation_bytes(name)).sum::<usize>()
    }
}

impl TaskCreated {
    /// What [`Task::bytes`] is once the task is created.
    pub(crate) fn task_bytes(&self) -> usize {
        bytes_when_created(&self.payload, self.options.as_deref(), &self.properties)
            + self.operation.as_deref().map_or(0, operation_bytes)
    }
}

fn bytes_when_created(payload: &[u8], options: Option<&TaskOptions>, properties: &Properties) -> usize {
    const FIXED_BYTES: usize = 320;
    let options = options.map_or(0, |options| 288 + options.collect_fields::<HeapBytes>().0);
    FIXED_BYTES + payload.len() + options + properties.heap_bytes()
}

fn operation_bytes(name: &str) -> usize {
    name.len() + 32
}

impl Lease {
    /// A lease is dead the moment its time has passed, whether or not that was recorded.
    pub fn is_over(&self, now: Time) -> bool {
        now > self.expires_at
    }
}

impl Outcome {
    pub fn state(self) -> Option<TaskState> {
        match self {
            Outcome::Completed => Some(TaskState::Completed),
            Outcome::Failed => Some(TaskState::Failed),
            Outcome::RetryAt(_) => Some(TaskState::Waiting),
            Outcome::Dead(_) => Some(TaskState::Dead),
            Outcome::Discarded => None,
        }
    }
}
