//! How many files may be open. Connections must leave room for the ledger's own.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept free of connections: segments, snapshots, a log that is read, the runtime's own.
const RESERVED_FILES: u64 = 128;
const MIN_CONNECTIONS: u64 = 16;
const MAX_CONNECTIONS: u64 = 10_000;

/// Raises the limit as far as it may be raised, and says how many connections that allows.
pub fn connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised the old limit holds, and the connections follow it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    connections_within(getrlimit(Resource::Nofile).current)
}

fn connections_within(files: Option<u64>) -> usize {
    let free = files.unwrap_or(u64::MAX).saturating_sub(RESERVED_FILES);
    free.clamp(MIN_CONNECTIONS, MAX_CONNECTIONS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p9_connections_leave_room_for_the_ledgers_files() {
        assert_eq!(connections_within(Some(1_024)), 896);
        assert_eq!(connections_within(Some(64)), 16);
        assert_eq!(connections_within(None), 10_000);
    }
}
