//! Delays between retries: exponential, with jitter and an upper bound.
//!
//! Only faults are retried: no connection, a reset, a timeout, or an answer that decided nothing (overloaded, not
//! serving). An answer that decided something is never a reason to ask again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

pub(crate) const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(5);
/// Longest `Retry-After` that is honored.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);
/// Enough for a coordinator to restart: the delays add up to more than a minute.
const MAX_TRIES: usize = 20;

/// The delays of one request, or of one connection that is made again and again.
#[derive(Debug)]
pub struct Backoff(ExponentialBackoff);

impl Backoff {
    /// Ends after 20 tries.
    pub fn limited() -> Backoff {
        Backoff(limited().build())
    }

    /// Never ends.
    pub fn unlimited() -> Backoff {
        Backoff(unlimited().build())
    }

    /// The delay after a failed try, at least as long as the server asked for; `None` after the last try.
    pub fn next_delay(&mut self, retry_after: Option<Duration>) -> Option<Duration> {
        self.0.next().map(|delay| at_least(delay, retry_after))
    }
}

/// The same delays for one call with [`backon::Retryable`].
pub(crate) fn limited() -> ExponentialBuilder {
    unlimited().with_max_times(MAX_TRIES - 1)
}

/// Each delay is between one half and the whole of its nominal length: `backon` adds up to the delay again as jitter.
fn unlimited() -> ExponentialBuilder {
    let builder = ExponentialBuilder::new().with_jitter().without_max_times();
    builder.with_min_delay(FIRST_DELAY / 2).with_max_delay(MAX_DELAY / 2)
}

/// Honors `Retry-After`, up to a bound.
pub(crate) fn at_least(delay: Duration, retry_after: Option<Duration>) -> Duration {
    delay.max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n13_clients_that_failed_together_come_back_apart() {
        let first = |_| Backoff::unlimited().next_delay(None).unwrap();
        let delays: std::collections::BTreeSet<Duration> = (0..100).map(first).collect();
        assert!(delays.len() > 50, "{delays:?}");
    }

    fn assert_nominal(n: u32, delay: Duration) {
        let nominal = (FIRST_DELAY * 2_u32.saturating_pow(n)).min(MAX_DELAY);
        assert!(delay >= nominal / 2 && delay <= nominal, "{n}: {delay:?}");
    }

    #[test]
    fn limited_delays_grow_to_a_bound_and_end() {
        let mut backoff = Backoff::limited();
        let all: Vec<Duration> = std::iter::from_fn(|| backoff.next_delay(None)).collect();
        assert_eq!(all.len(), MAX_TRIES - 1);
        (0..).zip(&all).for_each(|(n, delay)| assert_nominal(n, *delay));
        assert!(all.iter().sum::<Duration>() > Duration::from_secs(30));
    }

    #[test]
    fn unlimited_delays_stay_at_the_bound() {
        let mut backoff = Backoff::unlimited();
        (0..1_000).for_each(|n| assert_nominal(n, backoff.next_delay(None).unwrap()));
    }

    #[test]
    fn retry_after_is_honored_within_a_bound() {
        let delay = |retry_after| Backoff::limited().next_delay(Some(retry_after));
        assert_eq!(delay(Duration::from_secs(7)), Some(Duration::from_secs(7)));
        for day_or_longer in [Duration::from_secs(86_400), Duration::from_secs(u64::MAX), Duration::MAX] {
            assert_eq!(delay(day_or_longer), Some(MAX_RETRY_AFTER));
        }
    }
}
