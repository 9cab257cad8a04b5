//! The callback contract: a worker that a task was pushed to says that it began, that it is still at it, and how it
//! ended, each time with the task token from its envelope. One endpoint to a file.
//!
//! The answers have the bodies of this contract, not problem documents.

mod attempt;
mod caller;
pub(crate) mod completed;
pub(crate) mod heartbeat;
mod refusal;
pub(crate) mod rotate;
pub(crate) mod started;
