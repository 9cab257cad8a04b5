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
    ahead: Option<Ahead>,
}

/// The largest lead of the owner over our clock in the last two windows. A lead of long ago says nothing: clocks drift.
#[derive(Clone, Copy)]
struct Ahead {
    /// When the window began, by our clock.
    since: Time,
    window_ms: i64,
    window_before_ms: i64,
}

/// How long a lead counts, at least. A message that is late in this time does not turn time back.
const WINDOW_MS: u64 = 30_000;

impl Ahead {
    fn note(self, ahead_ms: i64, now: Time) -> Ahead {
        if now.since_ms(self.since) >= WINDOW_MS {
            return Ahead { since: now, window_ms: ahead_ms, window_before_ms: self.window_ms };
        }
        Ahead { window_ms: self.window_ms.max(ahead_ms), ..self }
    }

    fn ms(self) -> i64 {
        self.window_ms.max(self.window_before_ms)
    }
}

impl OwnerTime {
    pub(crate) fn new() -> OwnerTime {
        OwnerTime { clock: Clock::start(Time::ZERO), epoch: 0, newest: Time::ZERO, ahead: None }
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
            let now = self.clock.now();
            let ahead_ms = time.0.wrapping_sub(now.0) as i64;
            let begin = Ahead { since: now, window_ms: ahead_ms, window_before_ms: ahead_ms };
            let known = self.ahead.filter(|_| !is_new_owner);
            self.ahead = Some(known.map_or(begin, |known| known.note(ahead_ms, now)));
        }
    }

    /// The owner's time now, if the owner was seen to live.
    pub(crate) fn now(&self) -> Option<Time> {
        self.ahead.map(|ahead| Time(self.clock.now().0.saturating_add_signed(ahead.ms())))
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
    fn c15_an_owner_whose_clock_is_slower_than_ours_is_not_overtaken_after_hours() {
        // The owner loses a millisecond every ten seconds, and is heard every second.
        let mut ahead = Ahead { since: Time(0), window_ms: 0, window_before_ms: 0 };
        for second in 0..36_000 {
            let (now, drift) = (Time(second * 1_000), -(second as i64 / 10));
            ahead = ahead.note(drift, now);
            assert!(ahead.ms() - drift <= 7, "{second}: {} {drift}", ahead.ms());
        }
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
