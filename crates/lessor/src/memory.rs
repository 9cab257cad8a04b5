//! Finds out how much memory this process may use.

use std::fs;

/// Assumed when nothing can be read about the machine.
const UNKNOWN_BYTES: usize = 2 << 30;

/// Half of the memory that this process may use.
pub fn half_bytes() -> usize {
    all_bytes().unwrap_or(UNKNOWN_BYTES) / 2
}

/// The memory that this process may use: the machine's, or the limit of its control group if that is less.
pub fn all_bytes() -> Option<usize> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_meminfo(&text));
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let group = limits.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok()).min();
    [machine, group].into_iter().flatten().min()
}

fn parse_meminfo(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok().map(|kib| kib.saturating_mul(1_024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_memory_is_read_from_the_kernels_table() {
        assert_eq!(parse_meminfo("MemTotal:       1024 kB\nMemFree: 1 kB\n"), Some(1_048_576));
        assert_eq!(parse_meminfo("nothing here"), None);
    }
}
