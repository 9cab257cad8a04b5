//! The retry policy: backoff, the error that a worker reported, and the categories that are retried.

use std::sync::Arc;

use crate::Category;

impl Category {
    pub fn retryable_by_default(self) -> bool {
        matches!(self, Category::UserCode | Category::Infrastructure | Category::Timeout)
    }
}

/// The error that a worker reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError {
    pub category: Category,
    pub code: Option<Arc<str>>,
    pub message: Arc<str>,
}

impl TaskError {
    pub(crate) fn heap_bytes(&self) -> usize {
        64 + self.message.len() + self.code.as_ref().map_or(0, |code| code.len())
    }
}

/// How long a task waits before its next attempt. Factors are in thousandths, so that they compare exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    pub initial_ms: u64,
    pub factor_permille: u32,
    pub max_ms: u64,
    pub jitter_permille: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { initial_ms: 1_000, factor_permille: 2_000, max_ms: 5 * 60 * 1_000, jitter_permille: 200 }
    }
}

impl Backoff {
    /// The wait after the `failures`-th failure. `draw` is a random number made outside: 0 gives the shortest
    /// wait that the jitter allows, `u32::MAX` the longest.
    pub fn delay_ms(&self, failures: u32, draw: u32) -> u64 {
        let mut delay = u128::from(self.initial_ms);
        let cap = u128::from(self.max_ms);
        for _ in 1..failures {
            if delay >= cap || self.factor_permille <= 1_000 {
                break;
            }
            let next = delay * u128::from(self.factor_permille) / 1_000;
            if next == delay {
                break;
            }
            delay = next;
        }
        let delay = delay.min(cap);
        let swing = delay * u128::from(self.jitter_permille.min(1_000)) / 1_000;
        let jittered = delay - swing + 2 * swing * u128::from(draw) / u128::from(u32::MAX);
        jittered.min(cap) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: u32 = u32::MAX / 2;

    #[test]
    fn backoff_doubles_up_to_its_cap() {
        let backoff = Backoff { jitter_permille: 0, ..Backoff::default() };
        assert_eq!(backoff.delay_ms(1, MIDDLE), 1_000);
        assert_eq!(backoff.delay_ms(2, MIDDLE), 2_000);
        assert_eq!(backoff.delay_ms(5, MIDDLE), 16_000);
        assert_eq!(backoff.delay_ms(20, MIDDLE), 300_000);
        assert_eq!(backoff.delay_ms(u32::MAX, MIDDLE), 300_000);
    }

    #[test]
    fn jitter_stays_within_its_share() {
        let backoff = Backoff::default();
        assert_eq!(backoff.delay_ms(1, 0), 800);
        assert_eq!(backoff.delay_ms(1, u32::MAX), 1_200);
    }

    #[test]
    fn a_shrinking_factor_keeps_the_initial_wait() {
        let backoff = Backoff { factor_permille: 500, jitter_permille: 0, ..Backoff::default() };
        assert_eq!(backoff.delay_ms(9, MIDDLE), 1_000);
    }

    #[test]
    fn categories_round_trip_through_their_names() {
        for category in Category::ALL {
            assert_eq!(Category::from_name(category.name()), Some(category));
        }
        assert_eq!(Category::from_name("user_code"), None);
    }
}
