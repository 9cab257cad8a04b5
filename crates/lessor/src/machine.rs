//! The limits of the machine: the memory of this process, and the connections that its open files allow, so that the
//! ledger can always open its files.

use std::fs;

use procfs::{Current, Meminfo};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Assumed if the machine's memory is unknown.
const UNKNOWN_MEMORY_BYTES: usize = 2 << 30;
/// Files reserved for segments, snapshots, a log that is read, and the runtime.
const RESERVED_FILES: u64 = 128;
const MIN_CONNECTIONS: u64 = 16;
const MAX_CONNECTIONS: u64 = 10_000;
/// One part in so many of the rest is for connections to push targets.
const PUSH_PART: u64 = 4;
const MAX_PUSH_CONNECTIONS: u64 = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connections {
    pub from_clients: usize,
    pub to_push_targets: usize,
}

/// Raises the limit of open files as far as possible, and returns the numbers of connections that it allows.
pub(crate) fn connections() -> Connections {
    let limit = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, the numbers follow the old limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    connections_within(getrlimit(Resource::Nofile).current)
}

fn connections_within(files: Option<u64>) -> Connections {
    let free = files.unwrap_or(u64::MAX).saturating_sub(RESERVED_FILES);
    let push = (free / PUSH_PART).clamp(1, MAX_PUSH_CONNECTIONS);
    let clients = free.saturating_sub(push).clamp(MIN_CONNECTIONS, MAX_CONNECTIONS);
    Connections { from_clients: clients as usize, to_push_targets: push as usize }
}

pub(crate) fn half_of_memory() -> usize {
    memory_bytes().unwrap_or(UNKNOWN_MEMORY_BYTES) / 2
}

/// The memory that this process may use: the machine's, or the limit of its control group if that is less.
pub(crate) fn memory_bytes() -> Option<usize> {
    let machine = Meminfo::current().ok().and_then(|memory| usize::try_from(memory.mem_total).ok());
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let group = limits.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok()).min();
    [machine, group].into_iter().flatten().min()
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
