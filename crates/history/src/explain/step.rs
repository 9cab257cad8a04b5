//! One step of a task's timeline.

use std::sync::Arc;

use authority::event::{ExpiryCause, ReleaseCause};
use authority::{Actor, CancelCause, DeadReason, Event, Position, TaskError, TaskId, Time};

/// What one record did, and what the records before it say about that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub position: Position,
    pub at: Time,
    /// The attempt that it is about, and who had it.
    pub attempt: Option<u32>,
    pub worker: Option<Arc<str>>,
    /// How long the attempt ran, when this ended it.
    pub ran_ms: Option<u64>,
    /// How often its lease was extended, when this ended it.
    pub extensions: Option<u32>,
    /// Who asked for it, if that is recorded.
    pub by: Option<Arc<Actor>>,
    /// The node that owned the ledger and so decided it; unknown when the record of its takeover is no longer retained.
    pub owner: Option<Arc<str>>,
    pub kind: StepKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKind {
    Submitted {
        queue: Arc<str>,
        priority: i32,
        /// How long it was not to be leased.
        delay_ms: Option<u64>,
        redrive_of: Option<TaskId>,
    },
    Leased {
        /// Since it was ready; unknown when the records before are no longer retained.
        waited_ms: Option<u64>,
        lease_ms: u64,
    },
    Started {
        by: Arc<str>,
    },
    /// Time took the lease away, and the task waits again.
    Lost {
        cause: ExpiryCause,
        /// Since the last sign of the worker, as far as is recorded: heartbeats in quick succession are not.
        silent_ms: Option<u64>,
        /// No attempt is left.
        is_last: bool,
    },
    Released {
        cause: ReleaseCause,
    },
    /// The attempt failed, and the task waits for the next one.
    Failed {
        error: TaskError,
        retry_ms: u64,
    },
    FailedForGood {
        error: TaskError,
        why: FinalReason,
    },
    Completed {
        result_bytes: usize,
    },
    Dead {
        reason: DeadReason,
        detail: Option<Arc<str>>,
        /// What the worker that was stopped reported.
        error: Option<TaskError>,
        /// How long the worker that still had it had been silent.
        silent_ms: Option<u64>,
        /// Who had asked it to stop, if anyone had.
        cancel: Option<CancelCause>,
    },
    AskedToStop {
        cause: CancelCause,
        reason: Arc<str>,
        grace_ms: u64,
    },
    /// A report came without authority, and changed nothing.
    Discarded {
        why: DiscardReason,
    },
    /// The coordinator was started again, or another node took over, while the task was leased.
    Restarted {
        epoch: u64,
        /// The node that owned the ledger before, if it was another one.
        taken_from: Option<Arc<str>>,
    },
    /// An event that leaves the task's state as it is, such as a waiter that joins.
    Note {
        /// A name for scripts.
        name: &'static str,
        text: String,
        event: Event,
    },
    Purged,
}

/// Why a failure was the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalReason {
    LastAttempt {
        allowed: u32,
        /// Attempts that were given back and do not count.
        released: u32,
    },
    NotRetryable,
    /// The records of its creation or of its queue's settings are no longer retained.
    Unknown,
}

/// Why a report found its attempt without authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardReason {
    /// No heartbeat of the worker came in time.
    Lost,
    /// The worker was silent on every channel.
    WorkerLost,
    TimedOut,
    Released,
    /// The attempt had reported before.
    Reported,
    /// The task had ended.
    Ended,
    Unknown,
}

impl FinalReason {
    /// A name for scripts.
    pub fn name(self) -> &'static str {
        match self {
            FinalReason::LastAttempt { .. } => "LAST_ATTEMPT",
            FinalReason::NotRetryable => "NOT_RETRYABLE",
            FinalReason::Unknown => "UNKNOWN",
        }
    }
}

impl DiscardReason {
    /// A name for scripts.
    pub fn name(self) -> &'static str {
        match self {
            DiscardReason::Lost => "LEASE_LOST",
            DiscardReason::WorkerLost => "WORKER_LOST",
            DiscardReason::TimedOut => "TIMED_OUT",
            DiscardReason::Released => "RELEASED",
            DiscardReason::Reported => "ALREADY_REPORTED",
            DiscardReason::Ended => "TASK_ENDED",
            DiscardReason::Unknown => "UNKNOWN",
        }
    }
}

impl Step {
    pub(super) fn new(position: Position, at: Time, kind: StepKind) -> Step {
        Step {
            position,
            at,
            attempt: None,
            worker: None,
            ran_ms: None,
            extensions: None,
            by: None,
            owner: None,
            kind,
        }
    }
}

impl StepKind {
    /// A name for scripts.
    pub fn name(&self) -> &'static str {
        match self {
            StepKind::Submitted { .. } => "SUBMITTED",
            StepKind::Leased { .. } => "LEASED",
            StepKind::Started { .. } => "STARTED",
            StepKind::Lost { .. } => "LOST",
            StepKind::Released { .. } => "RELEASED",
            StepKind::Failed { .. } => "FAILED_AND_RETRIED",
            StepKind::FailedForGood { .. } => "FAILED",
            StepKind::Completed { .. } => "COMPLETED",
            StepKind::Dead { .. } => "DEAD",
            StepKind::AskedToStop { .. } => "ASKED_TO_STOP",
            StepKind::Discarded { .. } => "REPORT_DISCARDED",
            StepKind::Restarted { .. } => "COORDINATOR_RESTARTED",
            StepKind::Note { name, .. } => name,
            StepKind::Purged => "PURGED",
        }
    }

    /// The step of an event that only adds a line to the timeline.
    pub fn note(event: &Event) -> Option<StepKind> {
        let (name, text) = match event {
            Event::OperationAttached(event) => {
                ("WAITER_JOINED", format!("{} joined to wait for the outcome", event.operation))
            }
            Event::OperationDetached(event) => {
                ("WAITER_LEFT", format!("{} no longer waits for the outcome", event.operation))
            }
            _ => return None,
        };
        Some(StepKind::Note { name, text, event: event.clone() })
    }

    /// Whether this ends an attempt.
    pub fn ends_an_attempt(&self) -> bool {
        matches!(
            self,
            StepKind::Lost { .. }
                | StepKind::Released { .. }
                | StepKind::Failed { .. }
                | StepKind::FailedForGood { .. }
                | StepKind::Completed { .. }
                | StepKind::Dead { .. }
        )
    }
}
