//! The owner's time as another node knows it: its own clock, corrected by what the owner said last. It never goes back.
//!
//! Nothing is decided by it. It stamps ids, dates answers and measures how long a call has waited.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use authority::Time;

use crate::clock::Clock;

pub(super) struct FollowerClock {
    clock: Clock,
    ahead_ms: AtomicI64,
    newest: AtomicU64,
}

impl Default for FollowerClock {
    fn default() -> FollowerClock {
        let clock = Clock::start(Time::ZERO);
        FollowerClock { clock, ahead_ms: AtomicI64::new(0), newest: AtomicU64::new(0) }
    }
}

impl FollowerClock {
    pub(super) fn now(&self) -> Time {
        self.at(self.clock.now())
    }

    /// The owner's time is `owner` now.
    pub(super) fn follow(&self, owner: Time) {
        let ahead_ms = owner.0.wrapping_sub(self.clock.now().0) as i64;
        self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
    }

    fn at(&self, own: Time) -> Time {
        let now = own.0.saturating_add_signed(self.ahead_ms.load(Ordering::Relaxed));
        Time(self.newest.fetch_max(now, Ordering::Relaxed).max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_follows_the_owner_and_never_goes_back() {
        let clock = FollowerClock::default();
        let before = clock.now();
        clock.follow(before.plus_ms(3_600_000));
        let ahead = clock.now();
        assert!(ahead >= before.plus_ms(3_600_000));
        clock.follow(before);
        assert!(clock.now() >= ahead, "an owner whose clock is behind does not turn time back");
    }
}
