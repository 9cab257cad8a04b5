//! How long each call took.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::super::load::WARM_UP;
use super::super::stats::Spread;

/// Times of calls of many clients. Those that began before the count did are left out. Cheap to clone.
#[derive(Clone)]
pub struct Times {
    from: Instant,
    all: Arc<Mutex<Vec<std::time::Duration>>>,
}

impl Times {
    /// To be made when the clients begin.
    pub fn begin() -> Times {
        Times { from: Instant::now() + WARM_UP, all: Arc::default() }
    }

    /// Notes a call that began then and ends now.
    pub fn note(&self, began: Instant) {
        if began >= self.from {
            self.all.lock().unwrap_or_else(PoisonError::into_inner).push(began.elapsed());
        }
    }

    pub fn spread(&self) -> Spread {
        Spread::of(self.all.lock().unwrap_or_else(PoisonError::into_inner).iter().copied())
    }
}
