//! Finds out how much memory this process may use.

use std::fs;

use procfs::{Current, Meminfo};

/// Assumed when nothing can be read about the machine.
const UNKNOWN_BYTES: usize = 2 << 30;

/// Half of the memory that this process may use.
pub(crate) fn half_bytes() -> usize {
    all_bytes().unwrap_or(UNKNOWN_BYTES) / 2
}

/// The memory that this process may use: the machine's, or the limit of its control group if that is less.
pub(crate) fn all_bytes() -> Option<usize> {
    let machine = Meminfo::current().ok().and_then(|memory| usize::try_from(memory.mem_total).ok());
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let group = limits.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok()).min();
    [machine, group].into_iter().flatten().min()
}
