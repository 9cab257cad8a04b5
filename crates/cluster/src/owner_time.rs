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
    epoch: u64,
    newest: Time,
    /// How far the owner is ahead of our clock, at least. None until the owner was seen to live.
    ahead_ms: Option<i64>,
}

impl OwnerTime {
    pub(crate) fn new() -> OwnerTime {
        OwnerTime { clock: Clock::start(Time::ZERO), epoch: 0, newest: Time::ZERO, ahead_ms: None }
    }

    /// The time of the owner at `epoch` was at least `time` when this was called. What is seen at first says nothing: the
    /// owner may have been gone for days. A new owner may be behind the last one.
    pub(crate) fn note(&mut self, epoch: u64, time: Time) {
        let (is_first, is_new_owner) = (self.newest == Time::ZERO, epoch > self.epoch);
        if time <= self.newest {
            return;
        }
        (self.epoch, self.newest) = (epoch, time);
        if !is_first {
            let ahead_ms = time.0.wrapping_sub(self.clock.now().0) as i64;
            let known = self.ahead_ms.filter(|_| !is_new_owner);
            self.ahead_ms = Some(known.map_or(ahead_ms, |known| known.max(ahead_ms)));
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
        time.note(1, owner);
        assert_eq!(time.now(), None, "it may be old");
        time.note(1, owner.plus_ms(500));
        let now = time.now().unwrap();
        assert!(now >= owner.plus_ms(500) && now < owner.plus_ms(60_000), "{now:?}");
        time.note(1, owner.plus_ms(400));
        assert!(time.now().unwrap() >= now, "a late message does not turn time back");
    }

    #[test]
    fn c15_an_owner_whose_clock_is_behind_is_followed_too() {
        let mut time = OwnerTime::new();
        let owner = Time(coordinator::wall().0 - 3_600_000);
        time.note(1, owner);
        time.note(1, owner.plus_ms(500));
        assert!(time.now().unwrap() < owner.plus_ms(60_000));
    }

    #[test]
    fn c15_a_new_owner_that_is_behind_the_last_one_is_not_overtaken() {
        let mut time = OwnerTime::new();
        let first = coordinator::wall().plus_ms(3_600_000);
        time.note(1, first);
        time.note(1, first.plus_ms(30_000));
        time.note(2, first.plus_ms(30_001));
        let behind = time.now().unwrap();
        time.note(2, first.plus_ms(30_002));
        assert!(time.now().unwrap() < behind.plus_ms(20_000), "the first owner's lead is forgotten");
    }
}
