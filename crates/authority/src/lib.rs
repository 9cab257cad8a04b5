//! The authority: the pure state machine that decides who owns a task and which outcome is accepted.
//!
//! [`State`] is derived from events and from nothing else. A [`Command`] is decided against it without
//! changing it; the events of the decision are applied afterwards, one by one, each leaving a consistent
//! state. There is no clock, no randomness, no I/O, no lock and no cryptography in here: the time and every
//! generated value come in with the command, so the same events give the same state everywhere.

mod actor;
pub mod command;
pub mod event;
mod field;
mod ids;
pub mod injected_bug;
mod lease_ref;
pub mod limits;
mod properties;
mod push;
mod queue;
mod retry;
mod rules;
mod state;
mod tables;
mod task;

pub use command::{Answer, Command, Decision};
pub use event::{Event, InvalidTransition};
pub use field::{FieldValue, NamedField};
pub use ids::{Digest, Position, SecretHash, TaskId, Time};
pub use lease_ref::{LeaseRef, Rejection};
pub use properties::Properties;
pub use push::PushTarget;
pub use queue::{QueueCreation, QueueDefaults, QueueKey, QueueSettings, QueueView, Scope};
pub use retry::{Backoff, TaskError};
pub use state::{
    LimitsByTenant, ListPage, Owner, Restore, State, StoredKey, TenantLimits, TenantUsage, TokenKey,
};
pub use tables::{
    Actor, ActorKind, ApiKey, CancelCause, Category, Contract, DeadReason, QueueConfig, ReportDetails, Role,
    TaskOptions,
};
pub use task::{
    CancelRequest, Dedup, HeldLease, Lease, Outcome, Phase, Report, Task, TaskSettings, TaskState, TaskView,
};
