//! The claim contract: workers poll for one job at a time and report with the lease token. One endpoint to a file.

pub mod claim;
pub mod complete;
pub mod fail;
pub mod heartbeat;
mod message;
mod refusal;
mod token;
