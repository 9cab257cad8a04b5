//! Percentiles of durations, and the collected times of calls.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::load::WARM_UP;

pub(crate) struct Percentiles {
    sorted_ms: Vec<f64>,
}

impl Percentiles {
    pub(crate) fn of(times: impl IntoIterator<Item = Duration>) -> Percentiles {
        let mut sorted_ms: Vec<f64> = times.into_iter().map(|time| time.as_secs_f64() * 1_000.0).collect();
        sorted_ms.sort_by(f64::total_cmp);
        Percentiles { sorted_ms }
    }

    /// The time that this share of all times does not exceed; zero when there are none.
    pub(crate) fn at_ms(&self, percent: f64) -> f64 {
        let last = self.sorted_ms.len().saturating_sub(1);
        let at = (last as f64 * percent / 100.0).round() as usize;
        self.sorted_ms.get(at).copied().unwrap_or(0.0)
    }
}

/// Times of calls of many clients, without the calls that began during the warm-up. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CallTimes {
    from: Instant,
    all: Arc<Mutex<Vec<Duration>>>,
}

impl CallTimes {
    /// Call this when the clients start.
    pub(crate) fn start() -> CallTimes {
        CallTimes { from: Instant::now() + WARM_UP, all: Arc::default() }
    }

    pub(crate) fn record(&self, began: Instant) {
        if began >= self.from {
            self.all.lock().unwrap_or_else(PoisonError::into_inner).push(began.elapsed());
        }
    }

    pub(crate) fn percentiles(&self) -> Percentiles {
        Percentiles::of(self.all.lock().unwrap_or_else(PoisonError::into_inner).iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_from_the_sorted_times() {
        let percentiles = Percentiles::of((1..=101).rev().map(Duration::from_millis));
        assert_eq!(
            (percentiles.at_ms(0.0), percentiles.at_ms(50.0), percentiles.at_ms(99.0)),
            (1.0, 51.0, 100.0)
        );
        assert_eq!(Percentiles::of([]).at_ms(99.0), 0.0);
    }
}
