//! The worker's own clock: it never goes back and plays no part in what the coordinator's clock says.

use std::time::Duration;

/// The time on a clock that also counts while the machine is suspended; without it a lease would seem to live on
/// through a suspend.
#[cfg(target_os = "linux")]
pub fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(not(target_os = "linux"))]
pub fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}
