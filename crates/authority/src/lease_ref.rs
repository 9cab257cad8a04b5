//! Finds the lease that a report, heartbeat or release names, in the order of the model's verdicts.

use std::sync::Arc;

use crate::rules;
use crate::state::{Slot, State};
use crate::{Position, Report, Scope, Task, TaskId, Time};

/// A lease as a worker names it. The edge has checked that these belong together and were granted once; a
/// reference that names a lease this ledger never granted is still refused here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRef {
    pub scope: Scope,
    pub worker: Arc<str>,
    pub task: TaskId,
    pub attempt: u32,
    pub fencing_token: Position,
}

/// Why a request is invalid. Nothing is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rejection {
    /// No such task in this tenant and workspace.
    UnknownTask,
    /// The task never granted such a lease.
    NeverGranted,
    /// The lease belongs to another worker.
    WrongWorker,
    /// The attempt already reported something else.
    ConflictingReport,
}

/// What a lease reference turned out to be.
pub(crate) enum LeaseStatus<'a> {
    /// The task's current lease, which is still alive.
    Live(Slot, &'a Task),
    /// The task's current lease, but its time or the grace period of a cancel has passed; the expiry must be recorded
    /// first.
    Expired(Slot, &'a Task),
    /// A lease that the task once granted and that is over, with the report made under it, if there was one.
    Stale(&'a Task, Option<Report>),
    Rejected(Rejection),
}

impl LeaseRef {
    pub(crate) fn status<'a>(&self, state: &'a State, now: Time) -> LeaseStatus<'a> {
        let Some(slot) = state.find(&self.scope, self.task) else {
            return LeaseStatus::Rejected(Rejection::UnknownTask);
        };
        let task = state.task_at(slot);
        if let Some(report) = task.report_of(self.fencing_token) {
            let ours = report.attempt == self.attempt;
            return if ours {
                LeaseStatus::Stale(task, Some(*report))
            } else {
                LeaseStatus::Rejected(Rejection::NeverGranted)
            };
        }
        if self.attempt == 0 || self.attempt > task.attempt {
            return LeaseStatus::Rejected(Rejection::NeverGranted);
        }
        // A grant is a record of its task, after the one that created it.
        if self.fencing_token <= task.created || self.fencing_token > task.last {
            return LeaseStatus::Rejected(Rejection::NeverGranted);
        }
        match task.lease() {
            Some(lease) if lease.fencing_token == self.fencing_token => {
                if self.attempt != task.attempt {
                    LeaseStatus::Rejected(Rejection::NeverGranted)
                } else if !rules::is_held_by(lease, &self.worker) {
                    LeaseStatus::Rejected(Rejection::WrongWorker)
                } else if rules::is_live(task, lease, now) {
                    LeaseStatus::Live(slot, task)
                } else {
                    LeaseStatus::Expired(slot, task)
                }
            }
            // Earlier attempts have earlier leases, and the current attempt has but one.
            Some(lease) if self.attempt == task.attempt || self.fencing_token > lease.fencing_token => {
                LeaseStatus::Rejected(Rejection::NeverGranted)
            }
            _ => rules::earlier_lease(slot, task),
        }
    }
}
