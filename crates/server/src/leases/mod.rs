//! The worker protocol: lease, heartbeat, report. One endpoint to a file.

mod call;
pub(crate) mod complete;
pub(crate) mod fail;
pub(crate) mod heartbeat;
pub(crate) mod lease;
pub(crate) mod release;
