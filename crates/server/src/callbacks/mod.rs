//! The callback contract: the worker of a pushed task reports its start, its heartbeats and its end with the task token of
//! the envelope. The answers have the bodies of this contract, not problem documents. One endpoint to a file.

mod attempt;
mod caller;
pub(crate) mod completed;
pub(crate) mod heartbeat;
mod refusal;
pub(crate) mod rotate;
pub(crate) mod started;
