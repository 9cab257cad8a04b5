//! The owner's time, as a standby knows it.
//!
//! A new owner goes on from the time of the last one, not from its own wall clock: clocks that differ between nodes would
//! make leases shorter or longer than announced.

use authority::Time;
use coordinator::Standby;

use crate::rules;

/// Estimates the owner's time from what the owner has said. The estimate is never ahead of the owner, so no lease ends
/// early. The time of this node comes from outside, from any clock that never steps.
#[derive(Clone, Default)]
pub struct OwnerTime {
    /// From the owner's stream and records.
    heard: Option<Lead>,
    /// From the owner's beats, whose age the database knows.
    beats: Option<Lead>,
    /// The epoch and the time of the newest beat.
    last_beat: Option<(u64, Time)>,
}

/// How far the owner at an epoch is ahead of our clock, at least.
#[derive(Clone, Copy)]
struct Lead {
    epoch: u64,
    newest: Time,
    /// Whether the owner may have said it long ago: it is what was found first.
    is_old: bool,
    ahead: Ahead,
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
    fn begin(ahead_ms: i64, now: Time) -> Ahead {
        Ahead { since: now, window_ms: ahead_ms, window_before_ms: ahead_ms }
    }

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

impl Lead {
    /// What is known with one time more. An earlier owner says nothing about the clock of a later one, and a time that
    /// was known before says nothing new.
    fn with(known: Option<Lead>, epoch: u64, time: Time, now: Time) -> Lead {
        let ahead_ms = time.0.wrapping_sub(now.0) as i64;
        let begin = |is_old| Lead { epoch, newest: time, is_old, ahead: Ahead::begin(ahead_ms, now) };
        match known {
            None => begin(true),
            Some(known) if epoch < known.epoch || (epoch == known.epoch && time <= known.newest) => known,
            Some(known) if rules::is_of_another_owner(epoch > known.epoch) => begin(true),
            Some(known) if known.is_old => begin(false),
            Some(known) => {
                Lead { epoch, newest: time, is_old: false, ahead: known.ahead.note(ahead_ms, now) }
            }
        }
    }
}

impl OwnerTime {
    /// The owner at `epoch` had this time when it sent a message or made a record that has arrived.
    pub fn heard(&mut self, epoch: u64, time: Time, now: Time) {
        self.heard = Some(Lead::with(self.heard, epoch, time, now));
    }

    /// The owner at `epoch` said that it had this time, so many milliseconds ago by the clock of the database.
    pub fn beat(&mut self, epoch: u64, time: Time, age_ms: u64, now: Time) {
        // A beat that follows another one was made a moment ago.
        if self.last_beat.is_some_and(|(known, last)| known == epoch && last < time) {
            self.heard(epoch, time, now);
        }
        self.last_beat = Some((epoch, time));
        self.beats = Some(Lead::with(self.beats, epoch, time.plus_ms(age_ms), now));
    }

    /// The time of a new owner that continues where this standby ends. `began_at` is the epoch of the owner that it wanted to
    /// replace: a later one has come and gone meanwhile, so its records are new.
    pub fn after(mut self, standby: &Standby, began_at: u64, now: Time) -> Option<Time> {
        if let Some(owner) = standby.owner() {
            self.heard(owner.epoch, standby.time(), now);
            if owner.epoch > began_at {
                self.heard = self.heard.map(|heard| Lead { is_old: false, ..heard });
            }
        }
        self.at(now)
    }

    /// The owner's time now, as far as it is known.
    pub fn at(&self, now: Time) -> Option<Time> {
        // What a living owner said depends on no clock but its own: after a failover that of the database may be another one.
        let live = self.heard.filter(|heard| !heard.is_old);
        // An earlier owner may have been ahead of its successor.
        let beats = self.beats.filter(|beats| self.heard.is_none_or(|heard| beats.epoch >= heard.epoch));
        let lead = live.or(beats).or(self.heard.filter(|_| self.beats.is_some()))?;
        rules::time_of_owner(Some(Time(now.0.saturating_add_signed(lead.ahead.ms()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;
    const NOW: Time = Time(1_700_000_000_000);

    #[test]
    fn c15_time_goes_on_from_the_owners_time_whatever_the_own_clock_says() {
        for owner in [NOW.plus_ms(HOUR_MS), Time(NOW.0 - HOUR_MS)] {
            let mut time = OwnerTime::default();
            assert_eq!(time.at(NOW), None);
            time.heard(1, owner, NOW);
            assert_eq!(time.at(NOW), None, "it may be old");
            time.heard(1, owner.plus_ms(500), NOW.plus_ms(520));
            assert_eq!(time.at(NOW.plus_ms(600)), Some(owner.plus_ms(580)));
            time.heard(1, owner.plus_ms(400), NOW.plus_ms(700));
            assert_eq!(time.at(NOW.plus_ms(700)), Some(owner.plus_ms(680)), "a late message changes nothing");
        }
    }

    #[test]
    fn c15_an_owner_whose_clock_is_slower_than_ours_is_not_overtaken_after_hours() {
        // The owner loses a millisecond every ten seconds, and is heard every second.
        let mut ahead = Ahead::begin(0, Time(0));
        for second in 0..36_000 {
            let (now, drift) = (Time(second * 1_000), -(second as i64 / 10));
            ahead = ahead.note(drift, now);
            assert!(ahead.ms() - drift <= 7, "{second}: {} {drift}", ahead.ms());
        }
    }

    #[test]
    fn c15_a_node_that_never_saw_the_owner_live_goes_on_from_its_last_beat() {
        let mut time = OwnerTime::default();
        let owner = NOW.plus_ms(HOUR_MS);
        time.heard(1, owner, NOW);
        time.beat(1, owner.plus_ms(100), 2 * HOUR_MS, NOW);
        assert_eq!(time.at(NOW), Some(owner.plus_ms(100 + 2 * HOUR_MS)));
    }

    #[test]
    fn c15_a_database_whose_clock_is_ahead_after_a_failover_does_not_move_time() {
        let (mut time, owner) = (OwnerTime::default(), NOW.plus_ms(HOUR_MS));
        for beat in 0..4 {
            time.beat(1, owner.plus_ms(500 * beat), 20, NOW.plus_ms(500 * beat + 20));
        }
        time.beat(1, owner.plus_ms(1_500), HOUR_MS, NOW.plus_ms(2_000));
        assert_eq!(time.at(NOW.plus_ms(2_020)), Some(owner.plus_ms(2_000)));
    }

    #[test]
    fn c15_an_owner_that_was_found_dead_is_no_sign_of_life() {
        let mut time = OwnerTime::default();
        time.heard(1, NOW, NOW);
        time.heard(1, NOW.plus_ms(100), NOW.plus_ms(110));
        // This node stood still for an hour. Its owner was replaced meanwhile, and the next one is gone too.
        let now = NOW.plus_ms(HOUR_MS);
        time.heard(2, NOW.plus_ms(5_000), now);
        time.beat(2, NOW.plus_ms(5_500), HOUR_MS - 6_000, now);
        assert_eq!(time.at(now), Some(NOW.plus_ms(HOUR_MS - 500)));
    }

    #[test]
    fn c15_a_new_owner_that_is_behind_the_last_one_is_not_overtaken() {
        let mut time = OwnerTime::default();
        time.heard(1, NOW, NOW);
        time.beat(1, NOW.plus_ms(HOUR_MS), 0, NOW);
        time.heard(1, NOW.plus_ms(HOUR_MS), NOW.plus_ms(1));
        // Its record is read before it is announced.
        time.heard(2, NOW.plus_ms(HOUR_MS), NOW.plus_ms(2_000));
        time.beat(1, NOW.plus_ms(HOUR_MS), 2_000, NOW.plus_ms(2_000));
        assert_eq!(time.at(NOW.plus_ms(2_000)), Some(NOW.plus_ms(HOUR_MS)), "its lead is another one");
        time.beat(2, NOW.plus_ms(HOUR_MS), 100, NOW.plus_ms(2_100));
        assert_eq!(time.at(NOW.plus_ms(2_100)), Some(NOW.plus_ms(HOUR_MS + 100)));
    }
}
