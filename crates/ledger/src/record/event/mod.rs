//! The message of each event kind, and its way from and to the authority's event. One kind to a file.
//!
//! A missing value that has no meaning is refused; a missing optional one means what the field's comment says.

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
pub use lease_expired::LeaseExpired;
pub use lease_extended::LeaseExtended;
pub use lease_granted::LeaseGranted;
pub use lease_released::LeaseReleased;
pub use operation_attached::OperationAttached;
pub use operation_detached::OperationDetached;
pub use owner_took_over::OwnerTookOver;
pub use queue_configured::QueueConfigured;
pub use task_cancelled::TaskCancelled;
pub use task_completed::TaskCompleted;
pub use task_created::TaskCreated;
pub use task_dead::TaskDead;
pub use task_failed::TaskFailed;
pub use tasks_purged::TasksPurged;
pub use token_key_rotated::TokenKeyRotated;
