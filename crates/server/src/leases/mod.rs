//! The worker protocol: lease, heartbeat, report. One endpoint to a file.

pub mod complete;
pub mod fail;
pub mod heartbeat;
pub mod lease;
pub mod release;
pub mod verdict;
