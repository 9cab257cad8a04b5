//! Measures how long an execution has waited while no registered worker could run it (R37).
//!
//! A restarting worker is gone for a moment, so the execution is given up only after a whole grace period without one.

use std::time::Duration;

use authority::Time;

/// The first check is early, so that the grace period counts almost from the start; most executions have begun by then.
const FIRST_CHECK: Duration = Duration::from_secs(1);

pub(super) struct NoWorkerTimer {
    grace: Duration,
    since: Option<Time>,
    has_checked: bool,
}

impl NoWorkerTimer {
    pub(super) fn new(grace: Duration) -> NoWorkerTimer {
        NoWorkerTimer { grace, since: None, has_checked: false }
    }

    /// Records whether a registered worker could run the execution now. True after a whole grace period without one.
    pub(super) fn observe(&mut self, nobody_fits: bool, now: Time) -> bool {
        self.has_checked = true;
        if nobody_fits {
            now.since_ms(*self.since.get_or_insert(now)) >= self.grace.as_millis() as u64
        } else {
            self.since = None;
            false
        }
    }

    /// Whether the execution waits without a worker that could run it.
    pub(super) fn is_running(&self) -> bool {
        self.since.is_some()
    }

    pub(super) fn next_check(&self, now: Time) -> Duration {
        match self.since {
            Some(since) => self.grace.saturating_sub(Duration::from_millis(now.since_ms(since))),
            None if self.has_checked => self.grace,
            None => self.grace.min(FIRST_CHECK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(60);

    /// A worker was restarting at the time of a check, after the execution had waited for long.
    #[test]
    fn r37_only_a_whole_grace_without_a_worker_counts() {
        let mut timer = NoWorkerTimer::new(GRACE);
        assert!(!timer.observe(false, Time(1_000)));
        assert!(!timer.observe(true, Time(600_000)), "gone at this instant only");
        assert!(!timer.observe(false, Time(602_000)));
        assert!(!timer.is_running());
        assert!(!timer.observe(true, Time(700_000)));
        assert!(!timer.observe(true, Time(759_999)));
        assert!(timer.is_running());
        assert!(timer.observe(true, Time(760_000)));
    }

    #[test]
    fn r37_the_next_look_is_soon_at_first_and_then_when_something_can_be_decided() {
        let mut timer = NoWorkerTimer::new(GRACE);
        assert_eq!(timer.next_check(Time(0)), FIRST_CHECK);
        assert_eq!(
            NoWorkerTimer::new(Duration::from_millis(50)).next_check(Time(0)),
            Duration::from_millis(50)
        );
        timer.observe(false, Time(1_000));
        assert_eq!(timer.next_check(Time(1_000)), GRACE);
        timer.observe(true, Time(61_000));
        assert_eq!(timer.next_check(Time(61_000)), GRACE);
        assert_eq!(timer.next_check(Time(71_000)), Duration::from_secs(50));
        assert_eq!(timer.next_check(Time(999_000)), Duration::ZERO);
    }
}
