//! Reads the processor time and the memory of processes.

use anyhow::{Context, Result};
use procfs::WithCurrentSystemInfo;
use procfs::process::Process;

/// The processor time of a process so far, in user and in system mode.
pub(crate) fn cpu_s(process: &Process) -> Result<f64> {
    let stat = process.stat().context("no processor times")?;
    Ok((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
}

pub(crate) fn rss_bytes() -> u64 {
    let stat = Process::myself().and_then(|process| process.stat());
    stat.map_or(0, |stat| stat.rss_bytes().get())
}

pub(crate) fn peak_rss_bytes(process: u32) -> Result<u64> {
    let status = Process::new(i32::try_from(process)?)?.status()?;
    Ok(status.vmhwm.context("no peak of memory")? * 1_024)
}
