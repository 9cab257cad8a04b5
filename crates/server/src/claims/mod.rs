//! The claim contract: workers poll for one job at a time and report with the lease token. One endpoint to a file.

pub(crate) mod claim;
pub(crate) mod complete;
pub(crate) mod fail;
pub(crate) mod heartbeat;
mod message;
mod refusal;
mod token;
