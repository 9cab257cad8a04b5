//! How a report, heartbeat or release finds its lease, in the order in which verdicts are tried.

use std::sync::Arc;

use crate::quirk::{self, Quirk};
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
    pub lease: Position,
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
    AnotherStory,
}

/// What a lease reference turned out to be.
pub(crate) enum Found<'a> {
    /// The task's current lease, which is still alive.
    Current(Slot, &'a Task),
    /// The task's current lease, but its time or the grace of its cancel has passed; that must be recorded first.
    Overdue(Slot, &'a Task),
    /// A lease that the task once granted and that is over. The report made under it, if there was one.
    Past(&'a Task, Option<Report>),
    Rejected(Rejection),
}

impl LeaseRef {
    pub(crate) fn find<'a>(&self, state: &'a State, now: Time) -> Found<'a> {
        let Some(slot) = state.find(&self.scope, self.task) else {
            return Found::Rejected(Rejection::UnknownTask);
        };
        let task = state.task_at(slot);
        if let Some(report) = task.report_of(self.lease) {
            let ours = report.attempt == self.attempt;
            return if ours {
                Found::Past(task, Some(*report))
            } else {
                Found::Rejected(Rejection::NeverGranted)
            };
        }
        if self.attempt == 0 || self.attempt > task.attempt {
            return Found::Rejected(Rejection::NeverGranted);
        }
        // A grant is a record of its task, after the one that created it.
        if self.lease <= task.created || self.lease > task.last {
            return Found::Rejected(Rejection::NeverGranted);
        }
        match task.lease() {
            Some(lease) if lease.number == self.lease => {
                if self.attempt != task.attempt {
                    Found::Rejected(Rejection::NeverGranted)
                } else if lease.worker != self.worker && !quirk::is(Quirk::WrongWorkerAccepted) {
                    Found::Rejected(Rejection::WrongWorker)
                } else if lease.is_over(now)
                    || task.cancel.as_ref().is_some_and(|cancel| now >= cancel.grace_until)
                        && !quirk::is(Quirk::GraceNotChecked)
                {
                    Found::Overdue(slot, task)
                } else {
                    Found::Current(slot, task)
                }
            }
            // Earlier attempts have earlier leases, and the current attempt has but one.
            Some(lease) if self.attempt == task.attempt || self.lease > lease.number => {
                Found::Rejected(Rejection::NeverGranted)
            }
            Some(_) if quirk::is(Quirk::StaleLeaseAccepted) => Found::Current(slot, task),
            _ => Found::Past(task, None),
        }
    }
}
