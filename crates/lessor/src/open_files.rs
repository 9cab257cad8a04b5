//! How many files may be open. Connections must leave room for the ledger's own.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept free of connections: segments, snapshots, a log that is read, the runtime's own.
const RESERVED_FILES: u64 = 128;
const MIN_CONNECTIONS: u64 = 16;
const MAX_CONNECTIONS: u64 = 10_000;
/// Of what is free, one part in so many is for connections to push targets.
const PUSH_PART: u64 = 4;
const MAX_PUSH_CONNECTIONS: u64 = 4_096;

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    pub from_clients: usize,
    pub to_push_targets: usize,
}

/// Raises the limit as far as it may be raised, and says how many connections that allows.
pub fn connections() -> Connections {
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised the old limit holds, and the connections follow it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    connections_within(getrlimit(Resource::Nofile).current)
}

fn connections_within(files: Option<u64>) -> Connections {
    let free = files.unwrap_or(u64::MAX).saturating_sub(RESERVED_FILES);
    let push = (free / PUSH_PART).clamp(1, MAX_PUSH_CONNECTIONS);
    let clients = free.saturating_sub(push).clamp(MIN_CONNECTIONS, MAX_CONNECTIONS);
    Connections { from_clients: clients as usize, to_push_targets: push as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p9_connections_leave_room_for_the_ledgers_files() {
        for (files, from_clients, to_push_targets) in
            [(Some(1_024), 672, 224), (Some(64), 16, 1), (Some(20_000), 10_000, 4_096), (None, 10_000, 4_096)]
        {
            assert_eq!(connections_within(files), Connections { from_clients, to_push_targets });
        }
    }
}
