//! How long an execution has waited while no registered worker could run it (R37).
//!
//! A worker that is restarted is gone for a moment, so only what lasts for the whole grace counts.

use std::time::Duration;

use authority::Time;

/// The first look comes soon, so that the grace counts almost from the start; most executions have begun by then.
const FIRST_LOOK: Duration = Duration::from_secs(1);

pub struct Alone {
    grace: Duration,
    since: Option<Time>,
    has_looked: bool,
}

impl Alone {
    pub fn new(grace: Duration) -> Alone {
        Alone { grace, since: None, has_looked: false }
    }

    /// Takes in that somebody could run it now, or nobody. Whether it has been nobody for the whole grace.
    pub fn look(&mut self, nobody_fits: bool, now: Time) -> bool {
        self.has_looked = true;
        match nobody_fits {
            true => now.since_ms(*self.since.get_or_insert(now)) >= self.grace.as_millis() as u64,
            false => {
                self.since = None;
                false
            }
        }
    }

    /// Whether it matters who comes.
    pub fn is(&self) -> bool {
        self.since.is_some()
    }

    /// When it is to be looked again, if nobody comes before.
    pub fn next_look(&self, now: Time) -> Duration {
        match self.since {
            Some(since) => self.grace.saturating_sub(Duration::from_millis(now.since_ms(since))),
            None if self.has_looked => self.grace,
            None => self.grace.min(FIRST_LOOK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(60);

    /// A worker was restarted just when it was looked, after the execution had waited for long.
    #[test]
    fn r37_only_a_whole_grace_without_a_worker_counts() {
        let mut alone = Alone::new(GRACE);
        assert!(!alone.look(false, Time(1_000)));
        assert!(!alone.look(true, Time(600_000)), "gone at this instant only");
        assert!(!alone.look(false, Time(602_000)));
        assert!(!alone.is());
        assert!(!alone.look(true, Time(700_000)));
        assert!(!alone.look(true, Time(759_999)));
        assert!(alone.is());
        assert!(alone.look(true, Time(760_000)));
    }

    #[test]
    fn r37_the_next_look_is_soon_at_first_and_then_when_something_can_be_decided() {
        let mut alone = Alone::new(GRACE);
        assert_eq!(alone.next_look(Time(0)), FIRST_LOOK);
        assert_eq!(Alone::new(Duration::from_millis(50)).next_look(Time(0)), Duration::from_millis(50));
        alone.look(false, Time(1_000));
        assert_eq!(alone.next_look(Time(1_000)), GRACE);
        alone.look(true, Time(61_000));
        assert_eq!(alone.next_look(Time(61_000)), GRACE);
        assert_eq!(alone.next_look(Time(71_000)), Duration::from_secs(50));
        assert_eq!(alone.next_look(Time(999_000)), Duration::ZERO);
    }
}
