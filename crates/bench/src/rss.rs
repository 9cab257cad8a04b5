//! How much memory a process has in use.

use std::fs;

use anyhow::{Context, Result};

/// A page on every machine that this runs on so far; a wrong guess would show as absurd figures.
const PAGE_BYTES: u64 = 4_096;

pub fn bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * PAGE_BYTES
}

/// The most that a process has had so far.
pub fn peak_bytes(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().strip_suffix("kB")).context("no peak of memory")?;
    Ok(kib.trim().parse::<u64>()? * 1_024)
}
