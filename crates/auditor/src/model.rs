//! The auditor's model of a task and its leases: every version that the task ever had.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use authority::{
    Backoff, Contract, Dedup, Digest, Outcome, Position, Properties, QueueKey, TaskId, TaskState, Time,
};

pub(crate) struct TaskModel {
    pub queue: Arc<QueueKey>,
    pub payload: Arc<[u8]>,
    pub priority: i32,
    pub properties: Arc<Properties>,
    pub state: TaskState,
    pub attempt: u32,
    pub releases: u32,
    pub not_before: Option<Time>,
    /// The record since which it stands in the queue's line.
    pub waits_since: Option<Position>,
    /// The record that its place in the queue counts from when it waits again, if that is an earlier one.
    pub returns_to: Option<Position>,
    pub was_delayed: bool,
    /// Lost its last attempt; only its end may follow.
    pub exhausted: bool,
    pub cancel_grace: Option<Time>,
    pub deadline: Option<Time>,
    pub timeout_ms: Option<u64>,
    pub lease_ms: Option<u64>,
    pub max_attempts: Option<u32>,
    pub backoff: Option<Backoff>,
    pub dedup: Option<Dedup>,
    pub redrive_of: Option<TaskId>,
    pub result: Option<Arc<[u8]>>,
    pub ended_at: Option<Time>,
    pub purged: bool,
    pub purged_at: Option<Position>,
    pub current: Option<Position>,
    pub leases: BTreeMap<Position, LeaseModel>,
    pub versions: Vec<Version>,
    /// Those of an earlier life, before it was purged and created again by a repeated call.
    pub earlier: Vec<Version>,
    pub reports: usize,
    /// Who waits for an execution, and who ever did.
    pub waiters: BTreeSet<Arc<str>>,
    pub ever_waited: BTreeSet<Arc<str>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Version {
    pub position: Position,
    pub state: TaskState,
    pub attempt: u32,
    pub cancelling: bool,
}

pub(crate) struct LeaseModel {
    pub attempt: u32,
    pub worker: Arc<str>,
    pub session: Option<Arc<str>>,
    pub request: Option<Digest>,
    pub granted_at: Time,
    pub started_by: Option<Arc<str>>,
    /// Every expiry it ever had; the last is its own.
    pub expiries: Vec<Time>,
    pub over: Option<(Position, Over)>,
    pub report: Option<(Digest, Outcome)>,
    pub contract: Option<Contract>,
    /// The record since which the task had stood in its queue.
    pub since: Option<Position>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    Expired,
    /// The worker was silent, and the lease ended before its time.
    WorkerLost,
    Released,
    Reported,
    /// The task ended without a report.
    Ended,
}

impl TaskModel {
    pub(crate) fn is_over(&self) -> bool {
        self.purged || self.is_final()
    }

    pub(crate) fn is_final(&self) -> bool {
        matches!(self.state, TaskState::Completed | TaskState::Failed | TaskState::Dead)
    }

    pub(crate) fn last(&self) -> Position {
        self.versions.last().map_or(Position::ZERO, |version| version.position)
    }

    pub(crate) fn created(&self) -> Position {
        self.versions.first().map_or(Position::ZERO, |version| version.position)
    }

    pub(crate) fn used_attempts(&self) -> u32 {
        self.attempt.saturating_sub(self.releases)
    }

    pub(crate) fn lease(&self) -> Option<&LeaseModel> {
        self.leases.get(&self.current?)
    }

    /// Ends the current lease.
    pub(crate) fn end_lease(&mut self, at: Position, how: Over) {
        if let Some(lease) = self.current.take().and_then(|number| self.leases.get_mut(&number)) {
            lease.over = Some((at, how));
        }
    }

    pub(crate) fn wait(&mut self, not_before: Option<Time>) {
        self.state = TaskState::Waiting;
        self.not_before = not_before;
    }

    pub(crate) fn end(&mut self, state: TaskState, at: Time) {
        self.state = state;
        self.ended_at = Some(at);
    }
}

impl LeaseModel {
    pub(crate) fn expires_at(&self) -> Time {
        self.expiries.last().copied().unwrap_or_default()
    }
}
