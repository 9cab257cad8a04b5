//! The index keys of a task, as a pure function of the task. After a change only the keys that differ move,
//! so every index always equals what a scan of the tasks would give.

use std::sync::Arc;

use super::ready::QueueEntry;
use super::slab::Slot;
use crate::rules;
use crate::{Phase, Position, Task, TaskState, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexKeys {
    pub state: TaskState,
    pub eligibility: Eligibility,
    /// When a tick must handle the task.
    pub due: Option<Time>,
    pub worker: Option<Arc<str>>,
    pub ended: Option<Position>,
}

/// Where a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eligibility {
    NotLeasable,
    Ready(QueueEntry),
    Delayed(Time, QueueEntry),
}

impl IndexKeys {
    /// `ready_until` is the time up to which delayed tasks have become ready.
    pub(super) fn of(slot: Slot, task: &Task, ready_until: Time) -> IndexKeys {
        IndexKeys {
            state: task.state(),
            eligibility: eligibility(slot, task, ready_until),
            due: due(task),
            worker: task.lease().map(|lease| lease.worker.clone()),
            ended: task.ended().map(|(_, position)| position),
        }
    }
}

fn eligibility(slot: Slot, task: &Task, ready_until: Time) -> Eligibility {
    let Phase::Waiting { since, not_before, exhausted: false } = task.phase else {
        return Eligibility::NotLeasable;
    };
    if !rules::is_queued_again(task) {
        return Eligibility::NotLeasable;
    }
    let entry = QueueEntry { priority: task.priority, since: rules::queue_order(since), slot };
    match not_before {
        Some(time) if rules::is_delayed(time, ready_until) => Eligibility::Delayed(time, entry),
        _ => Eligibility::Ready(entry),
    }
}

/// The first moment at which time alone changes something about the task.
fn due(task: &Task) -> Option<Time> {
    match &task.phase {
        // Its death belongs to the same batch; only a ledger cut between the two leaves such a task.
        Phase::Waiting { exhausted: true, .. } => Some(Time::ZERO),
        Phase::Waiting { .. } => task.deadline(),
        Phase::Leased(lease) => {
            // An expiry is due just after the last moment of the lease.
            let expiry = lease.expires_at.plus_ms(1);
            let other = match &task.cancel {
                Some(cancel) => Some(cancel.grace_until),
                None => task.deadline(),
            };
            Some(other.map_or(expiry, |other| expiry.min(other)))
        }
        _ => None,
    }
}
