//! The worker's monotonic clock, which is independent of the coordinator's clock and of the wall clock.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Also advances while the machine is suspended; otherwise a lease would seem to survive a suspend.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The time since an arbitrary start.
pub fn now() -> Duration {
    let now = clock_gettime(CLOCK);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The time left until `deadline`; zero if it has passed.
pub fn until(deadline: Duration) -> Duration {
    deadline.saturating_sub(now())
}
