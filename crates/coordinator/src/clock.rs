//! The coordinator's time: the wall clock once, at start, then a clock that counts suspend and never steps. It
//! never lies before the newest time in the ledger, so time in the ledger never falls.

use std::time::{SystemTime, UNIX_EPOCH};

use authority::Time;
use rustix::time::{ClockId, clock_gettime};

use crate::rules::first_time;

#[derive(Clone, Debug)]
pub struct Clock {
    base: Time,
    /// Of the suspend-counting clock, when the base was taken.
    zero_ms: u64,
}

impl Clock {
    /// Starts at the wall clock, or at `newest` where that is later.
    pub fn start(newest: Time) -> Clock {
        Clock { base: first_time(newest, wall()), zero_ms: boottime_ms() }
    }

    /// Goes on from a time, whatever the wall clock says.
    pub fn resume(from: Time) -> Clock {
        Clock { base: from, zero_ms: boottime_ms() }
    }

    pub fn now(&self) -> Time {
        self.base.plus_ms(boottime_ms().saturating_sub(self.zero_ms))
    }
}

/// What the wall clock says. For people and for the start; no decision reads it.
///
/// Through the standard library, whose call a test can redirect to set the clock of one process.
pub fn wall() -> Time {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

fn boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    (now.tv_sec.max(0) as u64).saturating_mul(1_000) + (now.tv_nsec / 1_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t3_a_wall_clock_behind_the_ledger_does_not_turn_time_back() {
        let newest = wall().plus_ms(86_400_000);
        let clock = Clock::start(newest);
        assert!(clock.now() >= newest);
        assert!(clock.now() < newest.plus_ms(60_000));
    }

    #[test]
    fn an_old_ledger_starts_at_the_wall_clock() {
        let before = wall();
        assert!(Clock::start(Time(5)).now() >= before);
    }
}
