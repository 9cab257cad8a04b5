//! How much memory there is to use.

use std::fs;

use procfs::{Current, Meminfo};

/// When nothing can be read about the machine.
const UNKNOWN_BYTES: usize = 2 << 30;

/// Half of what this process may use.
pub fn half_bytes() -> usize {
    all_bytes().unwrap_or(UNKNOWN_BYTES) / 2
}

/// What this process may use: the machine's memory, or its control group's limit where that is less.
pub fn all_bytes() -> Option<usize> {
    let machine = Meminfo::current().ok().and_then(|memory| usize::try_from(memory.mem_total).ok());
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let group = limits.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok()).min();
    [machine, group].into_iter().flatten().min()
}
