//! Collects the times of calls.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::super::load::WARM_UP;
use super::super::percentiles::Percentiles;

/// Times of calls of many clients, without the calls that began during the warm-up. Cheap to clone.
#[derive(Clone)]
pub(super) struct CallTimes {
    from: Instant,
    all: Arc<Mutex<Vec<std::time::Duration>>>,
}

impl CallTimes {
    /// Call this when the clients start.
    pub(super) fn start() -> CallTimes {
        CallTimes { from: Instant::now() + WARM_UP, all: Arc::default() }
    }

    /// Records a call that ends now.
    pub(super) fn record(&self, began: Instant) {
        if began >= self.from {
            self.all.lock().unwrap_or_else(PoisonError::into_inner).push(began.elapsed());
        }
    }

    pub(super) fn percentiles(&self) -> Percentiles {
        Percentiles::of(self.all.lock().unwrap_or_else(PoisonError::into_inner).iter().copied())
    }
}
