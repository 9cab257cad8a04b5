//! Reads the memory use of a process.

use std::fs;

use anyhow::{Context, Result};

/// The page size of all supported machines so far; a wrong value would show as absurd figures.
const PAGE_BYTES: u64 = 4_096;

pub(crate) fn bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * PAGE_BYTES
}

/// The peak memory of a process so far.
pub(crate) fn peak_bytes(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().strip_suffix("kB")).context("no peak of memory")?;
    Ok(kib.trim().parse::<u64>()? * 1_024)
}
