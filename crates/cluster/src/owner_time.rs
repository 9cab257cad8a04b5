//! The owner's time, as a standby knows it.
//!
//! A new owner goes on from the time of the last one, not from its own wall clock: clocks that differ between nodes would
//! make leases shorter or longer than announced.

use authority::Time;
use coordinator::Clock;

/// Estimates the owner's time from what the owner has said. The estimate is never ahead of the owner, so no lease ends
/// early.
pub(crate) struct OwnerTime {
    clock: Clock,
    newest: Time,
    /// How far the owner is ahead of our clock, at least. None until the owner was seen to live.
    ahead_ms: Option<i64>,
}

impl OwnerTime {
    pub(crate) fn new() -> OwnerTime {
        OwnerTime { clock: Clock::start(Time::ZERO), newest: Time::ZERO, ahead_ms: None }
    }

    /// The owner's time was at least `time` when this was called. A time that was seen at the start says nothing: the
    /// owner may have been gone for days.
    pub(crate) fn note(&mut self, time: Time) {
        let is_first = self.newest == Time::ZERO;
        if time <= self.newest {
            return;
        }
        self.newest = time;
        if !is_first {
            let ahead_ms = time.0.wrapping_sub(self.clock.now().0) as i64;
            self.ahead_ms = Some(self.ahead_ms.map_or(ahead_ms, |known| known.max(ahead_ms)));
        }
    }

    /// The owner's time now, if the owner was seen to live.
    pub(crate) fn now(&self) -> Option<Time> {
        self.ahead_ms.map(|ahead_ms| Time(self.clock.now().0.saturating_add_signed(ahead_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c15_time_goes_on_from_the_owners_time_whatever_the_own_clock_says() {
        let mut time = OwnerTime::new();
        assert_eq!(time.now(), None);
        let owner = coordinator::wall().plus_ms(3_600_000);
        time.note(owner);
        assert_eq!(time.now(), None, "it may be old");
        time.note(owner.plus_ms(500));
        let now = time.now().unwrap();
        assert!(now >= owner.plus_ms(500) && now < owner.plus_ms(60_000), "{now:?}");
        time.note(owner.plus_ms(400));
        assert!(time.now().unwrap() >= now, "a late message does not turn time back");
    }

    #[test]
    fn c15_an_owner_whose_clock_is_behind_is_followed_too() {
        let mut time = OwnerTime::new();
        let owner = Time(coordinator::wall().0 - 3_600_000);
        time.note(owner);
        time.note(owner.plus_ms(500));
        assert!(time.now().unwrap() < owner.plus_ms(60_000));
    }
}
