//! What a command used up.

use std::time::Duration;

/// Of the command and all that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub user_time: Duration,
    pub system_time: Duration,
    /// The most memory that one of its processes had at a time.
    pub max_rss_bytes: u64,
}
