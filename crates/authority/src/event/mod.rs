//! The closed list of events. What has no event is not a decision.
//!
//! One kind to a file: its data, and what it does to the state. Applying checks first and changes after, so
//! an event that does not fit leaves the state as it was. Nothing here runs policy or reads a clock: the
//! decision stands in the event.

mod attempt_started;
mod cancel_requested;
mod lease_expired;
mod lease_extended;
mod lease_granted;
mod lease_released;
mod operation_attached;
mod operation_detached;
mod owner_took_over;
mod queue_configured;
mod task_cancelled;
mod task_completed;
mod task_created;
mod task_dead;
mod task_failed;
mod tasks_purged;
mod token_key_rotated;

pub use attempt_started::AttemptStarted;
pub use cancel_requested::CancelRequested;
pub use lease_expired::{ExpiryCause, LeaseExpired};
pub use lease_extended::LeaseExtended;
pub use lease_granted::LeaseGranted;
pub use lease_released::{LeaseReleased, ReleaseCause};
pub use operation_attached::OperationAttached;
pub use operation_detached::OperationDetached;
pub use owner_took_over::OwnerTookOver;
pub use queue_configured::QueueConfigured;
pub use task_cancelled::TaskCancelled;
pub use task_completed::TaskCompleted;
pub use task_created::TaskCreated;
pub use task_dead::{DeadReport, TaskDead};
pub use task_failed::{NextStep, TaskFailed};
pub use tasks_purged::TasksPurged;
pub use token_key_rotated::TokenKeyRotated;

use crate::rules;
use crate::state::{Slot, State};
use crate::{Position, Task, TaskId, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    TaskCreated(Box<TaskCreated>),
    LeaseGranted(LeaseGranted),
    LeaseExtended(LeaseExtended),
    LeaseExpired(LeaseExpired),
    LeaseReleased(LeaseReleased),
    AttemptStarted(AttemptStarted),
    TaskCompleted(TaskCompleted),
    TaskFailed(TaskFailed),
    TaskDead(TaskDead),
    TaskCancelled(TaskCancelled),
    CancelRequested(CancelRequested),
    OperationAttached(OperationAttached),
    OperationDetached(OperationDetached),
    QueueConfigured(QueueConfigured),
    TasksPurged(TasksPurged),
    TokenKeyRotated(TokenKeyRotated),
    OwnerTookOver(OwnerTookOver),
}

/// An event that does not fit the state: a bug, or a ledger that was tampered with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {position} does not fit: {what}")]
pub struct InvalidTransition {
    pub position: Position,
    pub what: String,
}

impl Event {
    /// The one task that the event is about, if it is about one.
    pub fn task(&self) -> Option<TaskId> {
        match self {
            Event::TaskCreated(event) => Some(event.task),
            Event::LeaseGranted(event) => Some(event.task),
            Event::LeaseExtended(event) => Some(event.task),
            Event::LeaseExpired(event) => Some(event.task),
            Event::LeaseReleased(event) => Some(event.task),
            Event::AttemptStarted(event) => Some(event.task),
            Event::TaskCompleted(event) => Some(event.task),
            Event::TaskFailed(event) => Some(event.task),
            Event::TaskDead(event) => Some(event.task),
            Event::TaskCancelled(event) => Some(event.task),
            Event::CancelRequested(event) => Some(event.task),
            Event::OperationAttached(event) => Some(event.task),
            Event::OperationDetached(event) => Some(event.task),
            Event::QueueConfigured(_)
            | Event::TasksPurged(_)
            | Event::TokenKeyRotated(_)
            | Event::OwnerTookOver(_) => None,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Event::TaskCreated(_) => "TaskCreated",
            Event::LeaseGranted(_) => "LeaseGranted",
            Event::LeaseExtended(_) => "LeaseExtended",
            Event::LeaseExpired(_) => "LeaseExpired",
            Event::LeaseReleased(_) => "LeaseReleased",
            Event::AttemptStarted(_) => "AttemptStarted",
            Event::TaskCompleted(_) => "TaskCompleted",
            Event::TaskFailed(_) => "TaskFailed",
            Event::TaskDead(_) => "TaskDead",
            Event::TaskCancelled(_) => "TaskCancelled",
            Event::CancelRequested(_) => "CancelRequested",
            Event::OperationAttached(_) => "OperationAttached",
            Event::OperationDetached(_) => "OperationDetached",
            Event::QueueConfigured(_) => "QueueConfigured",
            Event::TasksPurged(_) => "TasksPurged",
            Event::TokenKeyRotated(_) => "TokenKeyRotated",
            Event::OwnerTookOver(_) => "OwnerTookOver",
        }
    }

    pub(crate) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        match self {
            Event::TaskCreated(event) => event.apply(state, at),
            Event::LeaseGranted(event) => event.apply(state, at),
            Event::LeaseExtended(event) => event.apply(state, at),
            Event::LeaseExpired(event) => event.apply(state, at),
            Event::LeaseReleased(event) => event.apply(state, at),
            Event::AttemptStarted(event) => event.apply(state, at),
            Event::TaskCompleted(event) => event.apply(state, at),
            Event::TaskFailed(event) => event.apply(state, at),
            Event::TaskDead(event) => event.apply(state, at),
            Event::TaskCancelled(event) => event.apply(state, at),
            Event::CancelRequested(event) => event.apply(state, at),
            Event::OperationAttached(event) => event.apply(state, at),
            Event::OperationDetached(event) => event.apply(state, at),
            Event::QueueConfigured(event) => event.apply(state, at),
            Event::TasksPurged(event) => event.apply(state, at),
            Event::TokenKeyRotated(event) => event.apply(state, at),
            Event::OwnerTookOver(event) => event.apply(state, at),
        }
    }
}

/// Where and when an event stands in the ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub position: Position,
    pub time: Time,
}

impl At {
    pub fn invalid(self, what: impl Into<String>) -> InvalidTransition {
        InvalidTransition { position: self.position, what: what.into() }
    }

    /// The task that the event is about, or why there is none.
    fn task(self, state: &State, id: TaskId) -> Result<Slot, InvalidTransition> {
        state.slot_of(id).ok_or_else(|| self.invalid(format!("there is no task {id}")))
    }

    /// The task, which must be leased under this lease.
    fn leased(self, state: &State, id: TaskId, lease: Position) -> Result<(Slot, &Task), InvalidTransition> {
        let slot = self.task(state, id)?;
        let task = state.task_at(slot);
        match task.lease() {
            Some(current) if rules::is_current(current, lease) => Ok((slot, task)),
            Some(current) => {
                Err(self.invalid(format!("task {id} is leased under {}, not {lease}", current.fencing_token)))
            }
            None => Err(self.invalid(format!("task {id} is {:?}, not leased", task.state()))),
        }
    }

    /// As `leased`, and the lease must not have passed its time.
    fn leased_in_time(
        self,
        state: &State,
        id: TaskId,
        lease: Position,
    ) -> Result<(Slot, &Task), InvalidTransition> {
        let (slot, task) = self.leased(state, id, lease)?;
        if task.lease().is_some_and(|lease| !rules::is_in_time(lease, self.time)) {
            return Err(self.invalid(format!("lease {lease} of task {id} had passed its time")));
        }
        Ok((slot, task))
    }
}
