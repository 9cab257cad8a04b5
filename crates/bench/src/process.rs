//! Reads the processor time, the context switches and the memory of processes.

use anyhow::{Context, Result};
use procfs::WithCurrentSystemInfo;
use procfs::process::Process;

/// The processor time of a process so far, in user and in system mode.
pub(crate) fn cpu_s(process: &Process) -> Result<f64> {
    let stat = process.stat().context("no processor times")?;
    Ok((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
}

/// The context switches of all threads of a process so far.
pub(crate) fn context_switches(process: &Process) -> Result<u64> {
    let mut switches = 0;
    for thread in process.tasks().context("no threads")? {
        // A thread may have ended meanwhile.
        let Ok(status) = thread.and_then(|thread| thread.status()) else { continue };
        let counts = [status.voluntary_ctxt_switches, status.nonvoluntary_ctxt_switches];
        switches += counts.into_iter().flatten().sum::<u64>();
    }
    Ok(switches)
}

pub(crate) fn rss_bytes() -> u64 {
    let stat = Process::myself().and_then(|process| process.stat());
    stat.map_or(0, |stat| stat.rss_bytes().get())
}

pub(crate) fn peak_rss_bytes(process: &Process) -> Result<u64> {
    let status = process.status()?;
    Ok(status.vmhwm.context("no peak of memory")? * 1_024)
}
