//! What a command used up.

use std::ops::AddAssign;
use std::time::Duration;

/// Of the command, all that it waited for, and what of it was left and killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub user_time: Duration,
    pub system_time: Duration,
    /// The most memory that one of its processes had at a time; 0 where nobody tells.
    pub max_rss_bytes: u64,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.user_time += other.user_time;
        self.system_time += other.system_time;
        self.max_rss_bytes = self.max_rss_bytes.max(other.max_rss_bytes);
    }
}
