//! The health of a push target. A target that does not answer, or says that it cannot take tasks, is left alone for a while, longer
//! each time, and then tried with one task alone.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use authority::Backoff;
use tokio::time::Instant;

/// How long a target is left alone after each failure in a row.
const BACKOFF: Backoff =
    Backoff { initial_ms: 1_000, factor_permille: 2_000, max_ms: 60_000, jitter_permille: 200 };
/// A target that says itself when to come back is believed only so far.
const MAX_PAUSE: Duration = Duration::from_millis(BACKOFF.max_ms);

#[derive(Debug, Default)]
pub(super) struct Health(Mutex<Record>);

#[derive(Debug, Default)]
struct Record {
    /// Failures in a row.
    failures: u32,
    until: Option<Instant>,
    /// Rises with each failure that counts.
    generation: u64,
}

/// When a dispatch began, in terms of the failures before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Began(u64);

impl Health {
    pub(super) fn begin(&self) -> Began {
        Began(self.lock().generation)
    }

    /// The target took a task, or said that it never will. Answers whether it had failed before.
    pub(super) fn well(&self, began: Began) -> bool {
        let mut record = self.lock();
        // An answer to something sent before the last failure says nothing about the time after it.
        let news = began.0 == record.generation && record.failures > 0;
        if news {
            record.failures = 0;
            record.until = None;
        }
        news
    }

    /// The target failed. Dispatches that were under way together fail together, and count once. Answers how many
    /// failures in a row there are, if this one counts.
    pub(super) fn failed(&self, began: Began, retry_after: Option<Duration>, draw: u32) -> Option<u32> {
        let mut record = self.lock();
        if began.0 != record.generation {
            return None;
        }
        record.generation += 1;
        record.failures = record.failures.saturating_add(1);
        let pause = Duration::from_millis(BACKOFF.delay_ms(record.failures, draw));
        let pause = pause.max(retry_after.unwrap_or_default()).min(MAX_PAUSE);
        record.until = Some(Instant::now() + pause);
        Some(record.failures)
    }

    /// Until when the target is left alone, if it is to be tried with one task only.
    pub(super) fn unwell_until(&self) -> Option<Instant> {
        self.lock().until
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        // Each change is a few assignments that do not panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(health: &Health) -> Duration {
        health.unwell_until().unwrap() - Instant::now()
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_is_left_alone_longer_each_time_up_to_a_minute() {
        let health = Health::default();
        let mut last = Duration::ZERO;
        for failure in 1..=6 {
            assert_eq!(health.failed(health.begin(), None, u32::MAX / 2), Some(failure));
            assert!(pause(&health) > last);
            last = pause(&health);
        }
        for _ in 0..100 {
            health.failed(health.begin(), None, u32::MAX);
        }
        assert!(pause(&health) <= MAX_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn dispatches_that_fail_together_count_once() {
        let health = Health::default();
        let (one, other) = (health.begin(), health.begin());
        assert_eq!(health.failed(one, None, 0), Some(1));
        assert_eq!(health.failed(other, None, 0), None);
        assert!(!health.well(other), "an old answer is no sign of life");
        assert!(health.unwell_until().is_some());
        assert!(health.well(health.begin()));
        assert!(health.unwell_until().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_may_say_when_to_come_back_within_bounds() {
        let health = Health::default();
        health.failed(health.begin(), Some(Duration::from_secs(17)), 0);
        assert_eq!(pause(&health), Duration::from_secs(17));
        health.failed(health.begin(), Some(Duration::from_secs(100_000)), 0);
        assert_eq!(pause(&health), MAX_PAUSE);
    }
}
