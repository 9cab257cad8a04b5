//! The closed list of events, generated from the table in `tables.rs`. A decision without an event does not exist.
//!
//! Each event has a file that applies it to the state. Applying checks first and changes after, so an event that does not
//! fit leaves the state as it was. Nothing here runs policy or reads a clock: the decision is in the event.

mod attempt_started;
mod cancel_requested;
mod key_created;
mod key_revoked;
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

pub use crate::tables::{DeadReport, ExpiryCause, ReleaseCause};
pub use task_failed::NextStep;

use std::sync::Arc;

use crate::field::{Describe, NamedField};
use crate::rules;
use crate::state::{Slot, State};
use crate::{
    Actor, ApiKey, CancelCause, Contract, DeadReason, Digest, Position, Properties, QueueConfig, QueueKey,
    ReportDetails, Task, TaskError, TaskId, TaskOptions, Time,
};

macro_rules! define_events {
    ($($(#[$doc:meta])* $tag:literal $Name:ident($payload:ty) of $subject:ident {
        $($(#[$field_doc:meta])* $field_tag:literal $json:literal $field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $Name { $($(#[$field_doc])* pub $field: $type,)* }
        )*

        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Event { $($Name($payload),)* }

        impl Event {
            /// The names of all events.
            pub const NAMES: &[&str] = &[$(stringify!($Name),)*];

            pub fn name(&self) -> &'static str {
                match self { $(Event::$Name(_) => stringify!($Name),)* }
            }

            /// The one task that the event is about, if it is about one.
            pub fn task(&self) -> Option<TaskId> {
                match self { $(Event::$Name(event) => task_of!($subject event),)* }
            }

            /// The fields that are set, by their names in JSON.
            pub fn fields(&self) -> Vec<NamedField<'_>> {
                let mut fields = Vec::new();
                match self { $(Event::$Name(event) => { $(event.$field.describe($json, &mut fields);)* })* }
                fields
            }

            pub(crate) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
                match self { $(Event::$Name(event) => event.apply(state, at),)* }
            }
        }
    };
}

macro_rules! task_of {
    (ledger $event:ident) => {{
        let _ = $event;
        None
    }};
    (task $event:ident) => {
        Some($event.task)
    };
}

crate::event_table!(define_events);

/// An event that does not fit the state: a bug, or a ledger that was tampered with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {position} does not fit: {what}")]
pub struct InvalidTransition {
    pub position: Position,
    pub what: String,
}

/// Where and when an event stands in the ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub position: Position,
    pub time: Time,
}

impl At {
    pub(crate) fn invalid(self, what: impl Into<String>) -> InvalidTransition {
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
