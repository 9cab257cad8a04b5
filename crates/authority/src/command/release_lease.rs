//! A worker gives a lease back before its time, at no cost to the task's attempts.

use super::Decision;
use super::verdict::{dead, end_task, expire};
use crate::event::{Event, LeaseReleased, ReleaseCause};
use crate::lease_ref::LeaseStatus;
use crate::{LeaseRef, Rejection, State, Task, TaskState, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseLease {
    pub lease: LeaseRef,
    pub cause: ReleaseCause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseAnswer {
    /// The lease is over, by this call or before it; the task is in this state.
    Over(TaskState),
    Rejected(Rejection),
}

impl ReleaseLease {
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<ReleaseAnswer> {
        match self.lease.status(state, now) {
            LeaseStatus::Rejected(why) => Decision::only(ReleaseAnswer::Rejected(why)),
            LeaseStatus::Stale(task, _) => Decision::only(ReleaseAnswer::Over(task.state())),
            LeaseStatus::Expired(slot, _) => {
                let events = expire(state, slot, now);
                let after = if end_task(&events) { TaskState::Dead } else { TaskState::Waiting };
                Decision { events, answer: ReleaseAnswer::Over(after) }
            }
            LeaseStatus::Live(_, task) => {
                let (event, after) = release(task, self.cause);
                Decision::with(event, ReleaseAnswer::Over(after))
            }
        }
    }
}

/// The task waits again, or ends when it was being cancelled.
pub(super) fn release(task: &Task, cause: ReleaseCause) -> (Event, TaskState) {
    let lease = task.lease().map_or_else(Default::default, |lease| lease.fencing_token);
    match &task.cancel {
        None => (
            Event::LeaseReleased(LeaseReleased { task: task.id, fencing_token: lease, cause }),
            TaskState::Waiting,
        ),
        Some(cancel) => {
            (dead(task, cancel.cause.dead_reason(), Some(cancel.reason.clone())), TaskState::Dead)
        }
    }
}
