//! How much memory this process has in use.

use std::fs;

/// A page on every machine that this runs on so far; a wrong guess would show as absurd figures.
const PAGE_BYTES: u64 = 4_096;

pub fn bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * PAGE_BYTES
}
