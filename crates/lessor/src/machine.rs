//! The limits of the machine: the memory of this process, and the connections that its open files allow, so that the
//! ledger can always open its files.

use std::fs;
use std::path::Path;

use procfs::{Current, FromRead, Meminfo, ProcessCGroups};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const CONTROL_GROUPS: &str = "/sys/fs/cgroup";
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

/// The memory that this process may use: the machine's, or the smallest limit of its control groups.
pub(crate) fn memory_bytes() -> Option<usize> {
    let machine = Meminfo::current().ok().and_then(|memory| usize::try_from(memory.mem_total).ok());
    let groups = ProcessCGroups::from_file("/proc/self/cgroup").ok();
    let limit = groups.and_then(|groups| control_group_limit(Path::new(CONTROL_GROUPS), &groups));
    [machine, limit].into_iter().flatten().min()
}

/// The smallest memory limit of the groups of a process and of all groups around them, in version 2 and version 1. A path
/// that is not mounted here, as in a container, is skipped; the root of the mount is then the container's own group.
fn control_group_limit(root: &Path, groups: &ProcessCGroups) -> Option<usize> {
    let limits = groups.into_iter().flat_map(|group| {
        let (mount, file) = if group.hierarchy == 0 {
            (root.to_owned(), "memory.max")
        } else if group.controllers.iter().any(|controller| controller == "memory") {
            (root.join("memory"), "memory.limit_in_bytes")
        } else {
            return Vec::new();
        };
        let own = Path::new(group.pathname.trim_start_matches('/'));
        // The last ancestor is the empty path: the root itself.
        own.ancestors().map(|ancestor| mount.join(ancestor).join(file)).collect()
    });
    // A group without a limit says `max`, or in version 1 a number larger than any machine.
    limits.filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok()).min()
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

    #[test]
    fn the_smallest_memory_limit_of_the_surrounding_control_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let mib = |mib: usize| (mib << 20).to_string();
        let v1 = |group: &str, limit: &str| {
            limit_group(&root.path().join("memory").join(group), "memory.limit_in_bytes", limit)
        };
        let v2 = |group: &str, limit: &str| limit_group(&root.path().join(group), "memory.max", limit);
        let limit = |lines: &str| {
            control_group_limit(root.path(), &ProcessCGroups::from_read(lines.as_bytes()).unwrap())
        };

        v2("", "max\n");
        v2("services", &mib(512));
        v2("services/lessor", &mib(900));
        assert_eq!(limit("0::/services/lessor\n"), Some(512 << 20), "version 2: a group around it");
        assert_eq!(limit("0::/\n"), None, "version 2: no limit");
        assert_eq!(limit("0::/not/mounted\n"), None);

        v1("", "9223372036854771712\n");
        v1("docker/abc", &mib(256));
        assert_eq!(
            limit("4:cpu:/x\n5:memory,hugetlb:/docker/abc\n"),
            Some(256 << 20),
            "version 1: its own group"
        );
        assert_eq!(limit("5:memory:/docker/abc\n0::/services\n"), Some(256 << 20), "both versions");
        assert_eq!(limit("4:cpu:/docker/abc\n"), None, "another controller");
        v1("", &mib(64));
        assert_eq!(limit("5:memory:/not/mounted\n"), Some(64 << 20), "the root is the container's group");
    }

    fn limit_group(group: &Path, file: &str, limit: &str) {
        fs::create_dir_all(group).unwrap();
        fs::write(group.join(file), limit).unwrap();
    }
}
