//! How long a lease surely lives, by the worker's own clock.
//!
//! A worker must stop before its lease ends, not after, and it cannot read the coordinator's clock. So a heartbeat's
//! time is counted from when it was sent, not from when its answer came. The wall clock plays no part.

use std::time::Duration;

use prost_types::Timestamp;
use wire::grpc::LeasedTask;

/// A lease is granted for a tenth more than its length, because the coordinator records no extension that is younger
/// than that. After an answered heartbeat only the length itself is sure.
const GRANTED_TENTHS: u32 = 11;
const SURE_TENTHS: u32 = 10;

#[derive(Clone, Debug)]
pub struct LeaseClock {
    sure: Duration,
    /// Where the attempt's own time limit ends every extension.
    limit: Option<Duration>,
    valid_until: Duration,
}

impl LeaseClock {
    /// A task that was just received. When it was granted is not known until its first heartbeat, which goes out at
    /// once, is answered; until then it lives at most as long as from now.
    pub fn new(task: &LeasedTask, heard_at: Duration) -> LeaseClock {
        let length = match (&task.granted_at, &task.lease_expires_at) {
            (Some(granted), Some(expires)) => span(granted, expires),
            _ => Duration::ZERO,
        };
        let timeout = task.timeout.and_then(|timeout| Duration::try_from(timeout).ok());
        LeaseClock {
            sure: length * SURE_TENTHS / GRANTED_TENTHS,
            limit: timeout.map(|timeout| heard_at.saturating_add(timeout)),
            valid_until: heard_at + length,
        }
    }

    pub fn valid_until(&self) -> Duration {
        self.valid_until
    }

    pub fn is_over(&self, now: Duration) -> bool {
        now >= self.valid_until
    }

    /// A heartbeat that was sent then found the lease alive.
    pub fn extended(&mut self, sent_at: Duration) {
        let sure = sent_at + self.sure;
        self.valid_until = self.limit.map_or(sure, |limit| sure.min(limit));
    }
}

fn span(from: &Timestamp, to: &Timestamp) -> Duration {
    let nanos = |time: &Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    u64::try_from(nanos(to) - nanos(from)).map_or(Duration::ZERO, Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn task(length_s: i64, timeout_s: Option<i64>) -> LeasedTask {
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        LeasedTask {
            granted_at: at(1_000),
            lease_expires_at: at(1_000 + length_s),
            timeout: timeout_s.map(|seconds| prost_types::Duration { seconds, nanos: 0 }),
            ..LeasedTask::default()
        }
    }

    #[test]
    fn a_heartbeat_gives_the_length_without_its_tenth_from_when_it_was_sent() {
        let mut clock = LeaseClock::new(&task(66, None), seconds(100));
        assert_eq!(clock.valid_until(), seconds(166));
        clock.extended(seconds(110));
        assert_eq!(clock.valid_until(), seconds(170));
        assert!(!clock.is_over(seconds(169)) && clock.is_over(seconds(170)));
    }

    #[test]
    fn no_heartbeat_passes_the_attempts_time_limit() {
        let mut clock = LeaseClock::new(&task(66, Some(70)), seconds(100));
        clock.extended(seconds(160));
        assert_eq!(clock.valid_until(), seconds(170));
    }

    #[test]
    fn a_lease_without_times_is_over_at_once() {
        assert!(LeaseClock::new(&LeasedTask::default(), seconds(1)).is_over(seconds(1)));
        assert!(LeaseClock::new(&task(-5, None), seconds(1)).is_over(seconds(1)));
    }
}
